"""Parts of the product that watch themselves during a history: their faults would cost time and memory with
millions of messages, and show nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.bookkeeper import NO_DELAY
from tests.sim.counts import check_shared
from tests.sim.daemon import Life
from tests.sim.kernel import Violation
from tests.sim.world import World
from tidegate.index.blocks import persist
from tidegate.index.blocks.pacing import Interleaved
from tidegate.index.blocks.width import WidthEvidence, choose
from tidegate.index.catalog import background
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.context import Notices
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.index_logs import restorer
from tidegate.plugin.daemon.index_logs.turns import Turns


class _Turns(Turns):
    """A task with a turn takes no second one: it would wait for itself."""

    def __init__(self, at_once: int, patience_s: float) -> None:
        super().__init__(at_once, patience_s)
        self._takers: set[asyncio.Task[Any] | None] = set()

    async def __aenter__(self) -> None:
        taker = asyncio.current_task()
        if taker in self._takers:
            raise Violation("the reading of an index log takes a second turn")
        await super().__aenter__()
        self._takers.add(taker)

    async def __aexit__(self, *ended: Any) -> None:
        self._takers.discard(asyncio.current_task())
        await super().__aexit__(*ended)


class _Interleaved(Interleaved):
    """A compaction goes on in a spill's pauses while it has time left, and only then."""

    def between(self) -> None:
        merge, merged = self._merge, False

        def watched(pause: Any) -> None:
            nonlocal merged
            merged = True
            if not self._pace.allowance_ns:
                raise Violation("a compaction goes on in a spill's pause without time for it")
            merge(pause)

        self._merge = watched
        try:
            super().between()
        finally:
            self._merge = merge
        if not merged and self._pace.allowance_ns and self.error is None:
            raise Violation("a compaction does not continue, though it has time")


@contextmanager
def monitored(world: World) -> Iterator[None]:
    """The parts of a world's daemons watch themselves."""
    tell = Notices.corrupt_block
    repaired: set[tuple[Life, SubscriptionName]] = set()

    def choose_truly(evidence: WidthEvidence, *args: Any) -> Any:
        _require_true(world, evidence)
        return choose(evidence, *args)

    def tell_truly(notices: Notices[DelayIndex], logged: bool) -> None:
        index = notices._index
        life = next((each.life for each in world.daemons if index in each.indexes()), None)
        has_copy = logged and life is not None and _has_copy(life, index)
        tell(notices, logged)
        if life is None or (life, index.name) in repaired:
            return  # the next repair is omitted so soon after it
        if index.damaged:
            repaired.add((life, index.name))
        elif has_copy:
            raise Violation(f"{index.name} goes on without a block that its log has")

    clear = PositionSet.clear

    def clear_truly(positions: PositionSet) -> None:
        clear(positions)
        check_shared(positions)

    watching: tuple[tuple[Any, str, Any], ...] = (
        (Notices, "corrupt_block", tell_truly),
        (PositionSet, "clear", clear_truly),
        (restorer, "Turns", _Turns),
        (background, "Interleaved", _Interleaved),
        (persist, "choose", choose_truly),
    )
    former = [getattr(module, name) for module, name, _ in watching]
    for module, name, part in watching:
        setattr(module, name, part)
    try:
        yield
    finally:
        for (module, name, _), part in zip(watching, former, strict=True):
            setattr(module, name, part)


def _has_copy(life: Life, index: DelayIndex) -> bool:
    """True if the log of an index has a damaged block of it."""
    if life.engine is None or life.logs is None:
        return False
    stream = life.engine.ownership.get(index.name)
    if stream is None:
        return life.logs.has_all(index)
    return stream.session.index is index and life.logs.readable(stream)


def _require_true(world: World, evidence: WidthEvidence) -> None:
    """Raise Violation if a width is chosen by seconds in which nothing is due."""
    if any(daemon.disk.damaged or daemon.promises.histories for daemon in world.daemons):
        return
    seconds = {at_ms // 1_000 for at_ms in world.bookkeeper.log.deliver_at_ms.values() if at_ms != NO_DELAY}
    seconds |= {
        at_ms // 1_000
        for daemon in world.daemons
        for times in daemon.promises.logs.asked_ms.values()
        for asked in times.values()
        for at_ms in asked
    }
    wrong = set(evidence.seconds.tolist()) - seconds
    if wrong:
        raise Violation(
            f"a slice width is chosen by the seconds {sorted(wrong)[:8]}, in which nothing is due"
        )
