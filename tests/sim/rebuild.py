"""A daemon's control client that puts a topic's entries into an index, and has it let go of others, as
`tidegate rebuild` and its repair do. It knows topic and cursor as of its begin, perhaps outdated when the
daemon gets its words.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from tests.sim.kernel import Kernel, Process, Violation
from tests.sim.promises import Promises
from tests.sim.wire import Wire
from tidegate.index.entries.entry import Entries
from tidegate.index.format import decode_block, encode_block
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Ingest, Query, Reply, json_body
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Hello, Message, Ping, Pong, Role, Welcome

WINDOW = 4

Position = tuple[int, int]


class Rebuild:
    """One run of it, over one connection. Implements `wire.ClientEnd`.

    blocks: the entries, a block at a time. let_go: positions that the index need not answer for any more;
    requested when all is in. index: the daemon's, for a look when it has answered for a block.
    """

    def __init__(
        self,
        kernel: Kernel,
        process: Process,
        promises: Promises,
        name: tuple[str, str],
        blocks: Sequence[Sequence[tuple[int, int, int]]],
        let_go: Sequence[Position],
        index: Callable[[], DelayIndex | None],
    ) -> None:
        self.process = process
        self.over = False
        self._kernel = kernel
        self._promises = promises
        self._topic, self._subscription = name
        self._left: deque[Ingest] = deque(self._put(block) for block in blocks if block)
        if let_go:
            self._left.append(self._disown(let_go))
        self._let_go = PositionSet.of(let_go)
        self._index = index
        self._sent: dict[int, tuple[PositionSet, object]] = {}
        """Positions without an answer, and the history of the index then, by the number of their INGEST.

        One that waits for room in staging may be answered after a later one.
        """
        self._unanswered = 0
        self._taken = False
        self._last_seq = 0
        self._decoder = FrameDecoder()
        self._wire: Wire | None = None

    def begin(self, wire: Wire) -> None:
        """The connection is made."""
        self._wire = wire
        self._send(Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, "rebuild", "simulated"))

    def end(self) -> None:
        """Hang up, wherever it is."""
        if not self.over and self._wire is not None:
            self.over = True
            self._wire.close_client()

    def _put(self, entries: Sequence[tuple[int, int, int]]) -> Ingest:
        return Ingest(self._topic, self._subscription, encode_block(Entries.of(sorted(entries))))

    def _disown(self, positions: Sequence[Position]) -> Ingest:
        found = np.array(sorted(positions), np.int64)
        # One block has one ledger's worth or more: the times do not matter.
        entries = Entries(np.zeros(len(found), np.int64), found[:, 0].copy(), found[:, 1].copy())
        return Ingest(self._topic, self._subscription, encode_block(entries), disown=True)

    # ---- wire.ClientEnd

    def on_bytes(self, data: bytes) -> None:
        """See `wire.ClientEnd`."""
        for frame in self._decoder.feed(data):
            if self.over:
                return
            self._on_message(decode(frame), frame.seq)

    def on_lost(self) -> None:
        """See `wire.ClientEnd`."""
        self.over = True

    def _on_message(self, message: Message, seq: int) -> None:
        match message:
            case Welcome():
                self._send(
                    Query(
                        json_body(
                            {"what": "take-in", "topic": self._topic, "subscription": self._subscription}
                        )
                    )
                )
            case Ping():
                self._send(Pong(), seq)
            case Reply():
                self._on_reply(json.loads(message.body), seq)
            case _:
                self.end()  # the daemon shuts down

    def _on_reply(self, reply: dict[str, object], seq: int) -> None:
        self._kernel.note(f"rebuild <- {reply}")
        if "error" in reply:
            self.end()  # another one runs, or the store fails
            return
        if self._taken:
            self._unanswered -= 1
            self._check_is_in(*self._sent.pop(seq))
        elif "known" not in reply:
            raise Violation(f"the daemon answers take-in with {reply}")
        self._taken = True
        while self._left and self._unanswered < WINDOW:
            self._unanswered += 1
            message = self._left.popleft()
            self._promises.taken_in(self._subscription, message)
            positions = (
                PositionSet() if message.disown else PositionSet.of_entries(decode_block(message.block))
            )
            self._sent[self._last_seq + 1] = (positions.difference(self._let_go), self._history())
            self._send(message)
        if not self._unanswered:
            self.end()

    def _history(self) -> object:
        index = self._index()
        return None if index is None else (index, index.state.generation, index.state.claim)

    def _check_is_in(self, positions: PositionSet, then: object) -> None:
        """The daemon has answered that these are in: it holds them, unless they are acknowledged, or a reset,
        a CLEAR or damage came between. Raises Violation.
        """
        index = self._index()
        if index is None or then != self._history() or self._promises.may_lose(self._subscription):
            return
        left = positions.difference(index.state.held).difference(index.state.acknowledged)
        left.discard_up_to(*index.state.mark)
        if left:
            raise Violation(f"the daemon says that it has taken in {list(left)[:8]}, and does not hold them")

    def _send(self, message: Message, seq: int | None = None) -> None:
        if seq is None:
            self._last_seq += 1
            seq = self._last_seq if isinstance(message, Query | Ingest) else 0
        if self._wire is not None and not self.over:
            self._kernel.note(f"rebuild -> {message.type.name}")
            self._wire.write(encode(message, 0, seq))
