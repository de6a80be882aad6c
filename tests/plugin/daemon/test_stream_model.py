"""Random lives of one subscription against a model: frames, commits, reconnects and crashes of the daemon.

The broker's side does what the protocol asks of it: after every OPEN it sends again what was not durable.
Whatever happens, an entry that was added and not acknowledged is held or on its way, is handed out when due
and not before, and on one connection at most once.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.shim_client import GENERATION, INCARNATION
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.session import Change, Session
from tidegate.plugin.wire.messages import Ack, Add, Clear, Open

NAME = SubscriptionName("persistent://public/default/orders", "billing")
T0 = 1_800_000_000_000
HORIZON_MS = 50
OPTIONS = IndexOptions(
    slice_width_ms=100, staging_budget_bytes=480, carry_ms=20, block_entries=4, chunk_entries=8, merge_runs=2
)


class StreamLife(RuleBasedStateMachine):
    """`deliver_at_ms`.

    Every entry ever sent. `open_positions`: those that must come (again) until acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(T0)
        self.store = MemoryStore()
        self.catalog = Catalog.open(self.store, self.clock, OPTIONS)
        self.deliver_at_ms: dict[Position, int] = {}
        self.open_positions: set[Position] = set()
        self.handed_out: set[Position] = set()  # on this connection
        self.waiting: list[tuple[int, Change]] = []  # not durable, by seq
        self.seq = 0
        self.next_entry = 0

    @initialize(credit=st.integers(0, 20))
    def begin(self, credit: int) -> None:
        self.open_stream(PositionSet(), credit)

    def open_stream(self, in_flight: PositionSet, credit: int) -> None:
        request = Open(
            INCARNATION, 1, GENERATION, HORIZON_MS, credit, (-1, -1), NAME.topic, NAME.subscription, in_flight
        )
        self.session = Session(1, self.catalog.subscription(NAME, INCARNATION), request, credit_max=1_000_000)
        held = PositionSet()
        acknowledged = PositionSet()
        for answer in self.session.held_frames():
            held.update(answer.held)
            acknowledged.update(answer.acknowledged)
        assert held.isdisjoint(acknowledged)
        self.handed_out = set(in_flight)
        self.credit = credit
        resend, self.waiting, self.seq = self.waiting, [], 0
        on_the_way = {
            position for _, change in resend if isinstance(change, Add) for position in positions_of(change)
        }
        assert self.open_positions <= set(held) | on_the_way
        for _, change in resend:
            self.send(change)

    def send(self, change: Change) -> None:
        self.seq += 1
        self.waiting.append((self.seq, change))
        self.session.apply_frame(self.seq, change, 0)
        if isinstance(change, Clear):
            self.handed_out.clear()  # a CLEAR that is sent again makes its positions ordinary ones
        elif isinstance(change, Add) and change.near:
            self.handed_out.update(positions_of(change))

    @rule(delays=st.lists(st.integers(-20, 1_000), min_size=1, max_size=30), near=st.booleans())
    def add(self, delays: list[int], near: bool) -> None:
        rows = []
        for delay in delays:
            position = (self.next_entry // 20, self.next_entry % 20)
            self.next_entry += 1
            at_ms = self.clock.now_ms() + delay
            self.deliver_at_ms[position] = at_ms
            self.open_positions.add(position)
            rows.append((at_ms, *position))
        self.send(Add(Entries.of(rows), near))

    @precondition(lambda self: self.open_positions)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.open_positions)), min_size=1))
        self.open_positions -= chosen
        self.send(Ack(PositionSet.of(chosen)))

    @rule()
    def clear(self) -> None:
        self.open_positions.clear()
        self.send(Clear())

    @rule(by_ms=st.integers(0, 300))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule(more=st.integers(1, 20))
    def give_credit(self, more: int) -> None:
        self.credit += more
        self.session.add_credit(more)

    @rule(limit=st.integers(1, 20))
    def hand_out(self, limit: int) -> None:
        now_ms = self.clock.now_ms()
        due = self.session.pop_due(now_ms, limit)
        assert len(due) <= min(limit, self.credit)
        self.credit -= len(due)
        assert due.is_sorted()
        for at_ms, *rest in due:
            position = (rest[0], rest[1])
            assert at_ms == self.deliver_at_ms[position]
            assert at_ms <= now_ms + HORIZON_MS, "too early"
            assert position in self.open_positions, "acknowledged or cleared"
            assert position not in self.handed_out, "twice on one connection"
            self.handed_out.add(position)
        wake_at_ms = self.session.wake_at_ms()
        if self.credit and (wake_at_ms is None or wake_at_ms > now_ms):
            assert not self.overdue(now_ms)

    def overdue(self, now_ms: int) -> set[Position]:
        return {
            position
            for position in self.open_positions - self.handed_out
            if self.deliver_at_ms[position] <= now_ms + HORIZON_MS
        }

    @rule()
    def commit(self) -> None:
        news = self.session.durable(self.catalog.commit())
        if news is not None:
            self.waiting = [(seq, change) for seq, change in self.waiting if seq > news.seq]
        assert not self.waiting

    @rule()
    def upkeep(self) -> None:
        self.catalog.maintain(self.clock.now_ms())

    @rule(data=st.data(), credit=st.integers(0, 20))
    def reconnect(self, data: st.DataObject, credit: int) -> None:
        self.open_stream(self.choose_in_flight(data), credit)

    @rule(data=st.data(), credit=st.integers(0, 20))
    def crash(self, data: st.DataObject, credit: int) -> None:
        self.catalog = Catalog.open(self.store, self.clock, OPTIONS)
        self.open_stream(self.choose_in_flight(data), credit)

    def choose_in_flight(self, data: st.DataObject) -> PositionSet:
        known = sorted(self.handed_out & self.open_positions)
        return PositionSet.of(data.draw(st.sets(st.sampled_from(known))) if known else [])

    @invariant()
    def what_must_come_is_held(self) -> None:
        index = self.catalog.get(NAME)
        if index is not None:
            assert set(index.state.held) == self.open_positions

    def teardown(self) -> None:
        index = self.catalog.get(NAME)
        if index is None:
            return
        index.check()
        self.clock.advance(10_000)
        self.give_credit(1_000_000)
        for _ in range(len(self.open_positions) + 100):
            if not self.overdue(self.clock.now_ms()):
                break
            self.hand_out(20)
        assert not self.overdue(self.clock.now_ms())


def positions_of(change: Add) -> set[Position]:
    return {(ledger_id, entry_id) for _, ledger_id, entry_id in change.entries}


StreamLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreamLife = StreamLife.TestCase
