"""A target's index at the daemon: takes in slice files, and compares positions with the topic's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tidegate.index import Entries, PositionSet, SubscriptionName, sort_entries
from tidegate.index.format import encode_block
from tidegate.pipeline.rebuild.compare import Difference, compare
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.rebuild.plan import Target
from tidegate.pipeline.rebuild.stages import SLICES, SliceFile, blocks
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.ranges import Acknowledged, Position, acknowledged_positions
from tidegate.pipeline.topic.state import parse_state
from tidegate.plugin.wire.session import DaemonSession

_BLOCK_ENTRIES = 65_536
_LOOKS = 20
_LOOK_S = 0.5
_SETTLED = 5
"""After so many equal looks, the difference is not one that the broker is about to report."""


class TakenIn(NamedTuple):
    """``entries``: the topic's without acknowledged ones; ``added``: the new ones among them."""

    entries: int
    added: int


class IndexAtDaemon:
    """The index of one subscription of a target."""

    def __init__(
        self, session: DaemonSession, options: RebuildOptions, target: Target, subscription: str
    ) -> None:
        self._session = session
        self._options = options
        self._topic = TopicName.parse(target.topic)
        self._subscription = subscription
        self._end = target.end or Position(-1, -1)
        self.name = SubscriptionName(target.topic, subscription)
        self.known = False
        self.stored = PositionSet()

    def take_in(self) -> None:
        """Own it until the session ends. Raises ``UserError`` if another job owns it."""
        self.known = bool(self._session.take_in(self.name)["known"])

    def acknowledged(self) -> Acknowledged:
        """The cursor's present acknowledgements."""
        with Admin(self._options.admin_url, self._options.access) as admin:
            state = parse_state(self._topic, admin.internal_stats(self._topic))
        return state.acknowledged(self._subscription)

    def put(self, files: Files, found: Sequence[SliceFile]) -> TakenIn:
        """Take slice files in, the earliest first, without positions acknowledged since the plan."""
        acknowledged = self.acknowledged()
        entries = 0

        def live() -> Iterator[bytes]:
            nonlocal entries
            for one in found:
                for packed, block in blocks(files.read(f"{SLICES}/{one.name}.blocks"), one.name):
                    positions = PositionSet.of_entries(block)
                    self.stored.update(positions)
                    gone = acknowledged_positions(acknowledged, [positions]).intersection(positions)
                    left = block.take(~gone.contains(block)) if gone else block
                    entries += len(left)
                    if len(left):
                        yield encode_block(left) if gone else packed

        added = sum(self._session.put(self.name, live()))
        return TakenIn(entries, added)

    def compare(self, stored: PositionSet) -> Difference:
        """Compare the index's positions with the topic's, again and again while the broker still reports
        some.
        """
        pause = threading.Event()
        same, last = 0, (-1, -1, -1)
        for look in range(_LOOKS):
            before = self.acknowledged()
            held, known = self._session.positions(self.name)
            after = self.acknowledged()
            sets = [stored, held]
            found = compare(
                stored,
                held,
                known_acknowledged=known,
                before=acknowledged_positions(before, sets),
                after=acknowledged_positions(after, sets),
                end=self._end,
            )
            counts = (len(found.missing), len(found.extra), len(found.acknowledged_but_held))
            same, last = (same + 1 if counts == last else 1), counts
            if found.matched or same == _SETTLED or look == _LOOKS - 1:
                return found
            pause.wait(_LOOK_S)
        raise AssertionError("the last look returns")

    def settle(self, stored: PositionSet) -> tuple[Difference, int]:
        """Compare, and drop positions acknowledged in the cursor: (remaining difference, number dropped).

        A broker whose last consumer left right after acknowledging has not told the daemon.
        """
        found = self.compare(stored)
        gone = found.acknowledged_but_held
        if not gone:
            return found, 0
        self._disown(gone)
        return self.compare(stored), len(gone)

    def entries(self) -> Iterator[Entries]:
        """The index's entries, in order, in parts."""
        return self._session.entries(self.name)

    def put_right(
        self, found: Difference, wrong: PositionSet, files: Files, slices: Sequence[SliceFile]
    ) -> int:
        """Repair: drop positions held wrongly, and put missing ones in; returns the number of positions."""
        let_go = found.extra.snapshot()
        for one in (found.acknowledged_but_held, wrong):
            let_go.update(one)
        if let_go:
            self._disown(let_go)
        wanted = found.missing.snapshot()
        wanted.update(wrong.difference(found.acknowledged_but_held))

        def missing() -> Iterator[bytes]:
            for one in slices:
                for _, block in blocks(files.read(f"{SLICES}/{one.name}.blocks"), one.name):
                    which = wanted.contains(block)
                    if which.any():
                        yield encode_block(sort_entries(block.take(which)))

        if wanted:
            list(self._session.put(self.name, missing()))
        return len(let_go) + len(found.missing)

    def _disown(self, positions: PositionSet) -> None:
        list(self._session.put(self.name, _as_blocks(positions), disown=True))


def _as_blocks(positions: PositionSet) -> Iterator[bytes]:
    """Positions as blocks; their times are arbitrary."""
    for ledger_id, bitmap in positions.items():
        ids = np.array(bitmap, np.int64)
        for start in range(0, len(ids), _BLOCK_ENTRIES):
            part = ids[start : start + _BLOCK_ENTRIES]
            zeros = np.zeros(len(part), np.int64)
            yield encode_block(Entries(zeros, np.full(len(part), ledger_id, np.int64), part))
