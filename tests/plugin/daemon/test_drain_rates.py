"""How many messages consumers take a second, at their fastest of the last day."""

from __future__ import annotations

from tests.support.catalogs import INCARNATION, NAME, OTHER, START_MS
from tidegate.index import Catalog, DelayIndex, Entries, ManualClock, MemoryStore, PositionSet
from tidegate.plugin.daemon.drain_rates import KEPT_HOURS, DrainRates

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


class World:
    """Two subscriptions, with a message due in each millisecond."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.catalog = Catalog.open(MemoryStore(), self.clock)
        self.one, self.other = (self.catalog.subscription(name, INCARNATION) for name in (NAME, OTHER))
        for index in (self.one, self.other):
            index.add(Entries.of((START_MS + at, 1, at) for at in range(10_000)))
        self.rates = DrainRates(self.clock)

    def hand_out(self, index: DelayIndex, count: int) -> PositionSet:
        popped = index.timeline.pop_due(START_MS + HOUR_MS, count)
        assert len(popped) == count
        return PositionSet.of_entries(popped)

    def pass_by(self, ms: int) -> None:
        self.clock.advance(ms)
        self.rates.note(self.catalog)


def test_the_fastest_minute_of_the_last_day_counts() -> None:
    world = World()
    assert world.rates.per_second([world.one, world.other]) is None
    for count in (60, 600, 0, 120):
        world.one.acknowledge(world.hand_out(world.one, count))
        world.pass_by(MINUTE_MS)
    assert world.rates.per_second([world.one]) == 10
    assert world.rates.per_second([world.other]) is None
    world.other.acknowledge(world.hand_out(world.other, 30))
    world.pass_by(MINUTE_MS)
    assert world.rates.per_second([world.one, world.other]) == 10.5
    world.pass_by(HOUR_MS)
    world.one.acknowledge(world.hand_out(world.one, 300))
    world.pass_by(MINUTE_MS)
    world.pass_by((KEPT_HOURS - 1) * HOUR_MS)
    assert world.rates.per_second([world.one]) == 10
    world.pass_by(HOUR_MS)
    assert world.rates.per_second([world.one]) == 5, "the hour of the faster one has passed"
    world.pass_by(2 * HOUR_MS)
    assert world.rates.per_second([world.one, world.other]) is None


def test_a_rate_is_that_of_the_time_that_has_passed() -> None:
    world = World()
    world.one.acknowledge(world.hand_out(world.one, 600))
    world.pass_by(MINUTE_MS - 1)
    assert world.rates.per_second([world.one]) is None, "not before a minute has passed"
    world.pass_by(1 + MINUTE_MS)
    assert world.rates.per_second([world.one]) == 5


def test_only_what_was_handed_out_counts() -> None:
    world = World()
    waiting = PositionSet.of((1, at) for at in range(5_000, 6_000))
    world.one.acknowledge(waiting)  # cancelled
    world.pass_by(MINUTE_MS)
    assert world.rates.per_second([world.one]) is None
    world.hand_out(world.one, 600)
    world.one.mark_delete(1, 599)  # acknowledged in order
    world.pass_by(MINUTE_MS)
    assert world.rates.per_second([world.one]) == 10


def test_nothing_stays_of_a_forgotten_index() -> None:
    world = World()
    world.one.acknowledge(world.hand_out(world.one, 600))
    world.pass_by(MINUTE_MS)
    world.clock.advance(MINUTE_MS)
    world.rates.note([world.other])
    assert world.rates.per_second([world.one]) is None


def test_what_comes_back_or_moves_is_not_taken() -> None:
    world = World()
    state = world.one.state
    world.one.rewind(world.hand_out(world.one, 10).intersection(PositionSet()))
    assert state.taken() == 0, "handed out to a broker that is gone"
    here = world.hand_out(world.one, 10)
    world.one.move(Entries.of([(START_MS + HOUR_MS, 1, 0), (START_MS + HOUR_MS, 1, 9_999)]))
    assert (state.taken(), len(state.in_flight)) == (0, 9)
    world.one.acknowledge(here)
    assert state.taken() == 9
    world.hand_out(world.one, 10)
    world.one.clear()
    assert state.taken() == 9
