"""The index against a sorted list, through restarts and crashes, with every invariant walked at each step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.oracle import ENTRY_IDS, LEDGERS, START_MS, Oracle, entries_of
from tests.support.stores import CrashStore
from tidegate.index.blocks import width
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline import tide
from tidegate.index.timeline.page_reader import FIRST_KEY
from tidegate.index.timeline.tide import Borders

NAME = SubscriptionName("persistent://public/default/orders", "late")
INCARNATION = b"\x01" * 16

positions = st.tuples(st.integers(0, LEDGERS - 1), st.integers(0, ENTRY_IDS - 1))
position_sets = st.sets(positions, max_size=12)
TIDE_BORDERS_MS = ((20, 50, 51, 200), (20, 50), (15, 20, 40, 60, 80))
"""Of any steps, of one, and of equal ones after a shorter."""
BORDERS = 8

times_ms = st.integers(START_MS - 50, START_MS + 400)
moves = st.lists(st.builds(lambda at_ms, one: (at_ms, *one), times_ms, positions), min_size=1, max_size=12)
indexes_of_choice = st.integers(0, 1 << 16)


def after(blocks: int) -> Callable[[], bool]:
    """A pause after so many blocks, or one more."""
    asked = itertools.count()
    return lambda: next(asked) >= blocks


class IndexMachine(RuleBasedStateMachine):
    """Every operation goes to the index and to the oracle."""

    @initialize(
        options=st.builds(
            IndexOptions,
            slice_width_ms=st.sampled_from([3, 50, 1_000]),
            slice_width_auto=st.booleans(),
            staging_budget_bytes=st.sampled_from([0, 240, 2_400, 1 << 20]),
            carry_ms=st.sampled_from([0, 5, 50]),
            persist_age_ms=st.sampled_from([50, 1 << 30]),
            block_entries=st.sampled_from([1, 3, 64]),
            chunk_entries=st.sampled_from([1, 4, 100]),
            merge_runs=st.sampled_from([2, 3]),
            compaction_entries=st.sampled_from([1, 20, 1 << 20]),
            write_piece_bytes=st.sampled_from([1, 300, 10_000]),
        )
    )
    def start(self, options: IndexOptions) -> None:
        self.few = patch.object(width, "ENTRIES_MIN", 1)
        self.few.start()
        self.options = options
        self.store = CrashStore()
        self.clock = ManualClock(START_MS)
        self.catalog = Catalog.open(self.store, self.clock, options)
        self.index: DelayIndex = self.catalog.subscription(NAME, INCARNATION)
        self.oracle = Oracle()
        self.borders = Borders(BORDERS)
        self.oracle.width_ms, self.oracle.width_auto = options.slice_width_ms, options.slice_width_auto
        self.catalog.commit()
        self.states = [self.oracle.snapshot()]
        """The state at the last commit and after each change since."""
        self.token = 0

    def changed(self, token: int) -> None:
        self.token = token
        self.states.append(self.oracle.snapshot())

    @rule(which=st.lists(positions, min_size=1, max_size=20))
    def add(self, which: list[Position]) -> None:
        token = self.index.add(entries_of(which))
        self.oracle.add(which)
        self.changed(token)

    @rule(which=moves)
    def move(self, which: list[EntryKey]) -> None:
        """Earlier or later, overdue or into the current slice, twice, back, before the position is known."""
        token = self.index.move(Entries.of(which))
        self.oracle.move(which)
        self.changed(token)

    @rule(chosen=st.lists(indexes_of_choice, min_size=1, max_size=12), by_ms=st.integers(-300, 300))
    def move_held(self, chosen: list[int], by_ms: int) -> None:
        held = sorted(self.oracle.held.items())
        if held:
            some = [held[choice % len(held)] for choice in chosen]
            self.move([(at_ms + by_ms, *position) for position, at_ms in some])

    @rule(chosen=st.lists(indexes_of_choice, max_size=12), at_ms=times_ms)
    def move_in_flight(self, chosen: list[int], at_ms: int) -> None:
        in_flight = sorted(self.oracle.in_flight)
        if in_flight:
            self.move([(at_ms, *in_flight[choice % len(in_flight)]) for choice in chosen])

    @rule(limit=st.integers(0, 30))
    def pop(self, limit: int) -> None:
        now_ms = self.clock.now_ms()
        popped = self.index.timeline.pop_due(now_ms, limit)
        assert list(popped) == self.oracle.pop(now_ms, limit)
        if len(popped) < limit:
            next_due_ms = self.index.timeline.next_due_ms()
            assert next_due_ms is None or next_due_ms > now_ms

    @rule(chosen=st.lists(indexes_of_choice, max_size=12))
    def acknowledge_in_flight(self, chosen: list[int]) -> None:
        in_flight = sorted(self.oracle.in_flight)
        if in_flight:
            self._acknowledge({in_flight[choice % len(in_flight)] for choice in chosen})

    @rule(which=position_sets)
    def acknowledge_any(self, which: set[Position]) -> None:
        self._acknowledge(which)

    def _acknowledge(self, which: set[Position]) -> None:
        token = self.index.acknowledge(PositionSet.of(which))
        self.oracle.acknowledge(which)
        self.changed(token)

    @rule(which=position_sets)
    def unacknowledge(self, which: set[Position]) -> None:
        token = self.index.unacknowledge(PositionSet.of(which))
        self.oracle.unacknowledge(which)
        self.changed(token)

    @rule(ledger_id=st.integers(0, LEDGERS - 2), entry_id=st.integers(-1, ENTRY_IDS))
    def mark_delete(self, ledger_id: int, entry_id: int) -> None:
        token = self.index.mark_delete(ledger_id, entry_id)
        self.oracle.mark_delete((ledger_id, entry_id))
        self.changed(token)

    @rule(generation=st.sampled_from([0, 1, 7, (1 << 63) - 1]))
    def begin_generation(self, generation: int) -> None:
        token = self.index.begin_generation(generation)
        self.oracle.begin_generation(generation)
        self.changed(token)

    @rule(in_flight=position_sets)
    def rewind(self, in_flight: set[Position]) -> None:
        self.index.rewind(PositionSet.of(in_flight))
        self.oracle.rewind(in_flight)

    @rule(which=position_sets)
    def mark_in_flight(self, which: set[Position]) -> None:
        self.index.state.mark_in_flight(PositionSet.of(which))
        self.oracle.mark_in_flight(which)

    @rule(width_ms=st.sampled_from([1, 10, 77, 5_000]), auto=st.booleans())
    def set_slice_width(self, width_ms: int, auto: bool) -> None:
        token = self.index.set_slice_width(width_ms, auto=auto)
        self.oracle.width_ms, self.oracle.width_auto = width_ms, auto
        self.changed(token)

    @rule(width_ms=st.sampled_from([1, 3, 50, 5_000]), auto=st.booleans())
    def set_slice_width_during_a_persist(self, width_ms: int, auto: bool) -> None:
        """A width set while a persist is on its way stays."""
        self.catalog.commit()
        self.states = [self.oracle.snapshot()]
        job = self.index.upkeep.begin_persist(self.clock.now_ms())
        token = self.index.set_slice_width(width_ms, auto=auto)
        job.run()
        self.index.upkeep.finish_persist()
        self.oracle.width_ms, self.oracle.width_auto = width_ms, auto
        self.changed(token)

    @rule(blocks=st.integers(0, 8))
    def compact(self, blocks: int) -> None:
        """It pauses after so many blocks, and may go on later."""
        merge = self.index.upkeep.begin_compaction()
        if merge is not None:
            merge(after(blocks))
            self.index.upkeep.finish_compaction()

    @rule(
        blocks=st.lists(st.integers(0, 8), min_size=1, max_size=3),
        meanwhile=st.sampled_from(["nothing", "acknowledge", "mark_delete", "clear", "pop", "move"]),
        fails=st.booleans(),
    )
    def merge_beside_a_persist(self, blocks: list[int], meanwhile: str, fails: bool) -> None:
        self.catalog.commit()
        self.states = [self.oracle.snapshot()]
        job = self.index.upkeep.begin_persist(self.clock.now_ms())
        merge = self.index.upkeep.begin_compaction(commits=False)
        for each in blocks:
            if merge is not None:
                merge(after(each))
        if meanwhile == "acknowledge":
            self._acknowledge(set(sorted(self.oracle.held)[::2]))
        elif meanwhile == "mark_delete":
            self.mark_delete(0, ENTRY_IDS // 2)
        elif meanwhile == "clear":
            self.clear()
        elif meanwhile == "pop":
            self.pop(5)
        elif meanwhile == "move":
            self.move([(at + 30, *one) for one, at in sorted(self.oracle.held.items())[::2]])
        if fails:
            self.index.upkeep.abandon_persist()
        else:
            job.run()
            self.index.upkeep.finish_persist()
        if merge is not None:
            self.index.upkeep.finish_compaction()

    @precondition(lambda self: len(self.oracle.held) > 10)
    @rule()
    def clear(self) -> None:
        token = self.index.clear()
        self.oracle.clear()
        self.changed(token)

    @rule(by_ms=st.integers(1, 60))
    def time_passes(self, by_ms: int) -> None:
        self.clock.advance(by_ms)

    @rule()
    def commit(self) -> None:
        assert self.catalog.commit() >= self.token
        assert self.catalog.journal.durable_token >= self.token
        self.states = [self.oracle.snapshot()]

    @rule()
    def maintain(self) -> None:
        self.catalog.maintain(self.clock.now_ms())

    @rule()
    def persist(self) -> None:
        self.catalog.persist(NAME)

    @rule()
    def restart(self) -> None:
        self.catalog.close()
        self._reopen(self.store.crashed(self.store.unsynced))
        assert self.oracle.same_durable_state(self.index)

    @rule(kept=st.integers(0, 5))
    def crash(self, kept: int) -> None:
        """Committed changes are there; of the rest, a prefix."""
        self._reopen(self.store.crashed(min(kept, self.store.unsynced)))
        left = [state for state in self.states if state.same_durable_state(self.index)]
        assert left, "the state after a crash is none that there was since the last commit"
        self.oracle = left[-1]
        self.oracle.in_flight = set()
        self.states = [self.oracle.snapshot()]

    @rule(writes=st.integers(0, 3))
    def crash_in_persist(self, writes: int) -> None:
        """The process dies while a persist has written some pieces and no commit."""
        job = self.index.upkeep.begin_persist(self.clock.now_ms())
        with self._dying_after(writes):
            job.run()
        self.crash(self.store.unsynced)

    @contextlib.contextmanager
    def _dying_after(self, writes: int) -> Iterator[None]:
        budget = [writes]
        write = self.store.write

        def limited(batch, *, sync):  # type: ignore[no-untyped-def]
            if budget[0] == 0:
                raise KeyboardInterrupt
            budget[0] -= 1
            write(batch, sync=sync)

        self.store.write = limited  # type: ignore[method-assign]
        with contextlib.suppress(KeyboardInterrupt):
            yield

    @rule(writes=st.integers(0, 5))
    def crash_in_compaction(self, writes: int) -> None:
        """The process dies while a compaction has written some pieces, and perhaps some slices."""
        merge = self.index.upkeep.begin_compaction()
        if merge is not None:
            with self._dying_after(writes):
                merge(after(100))
            self.crash(self.store.unsynced)

    def _reopen(self, store: CrashStore) -> None:
        self.store = store
        self.catalog = Catalog.open(store, self.clock, self.options)
        index = self.catalog.get(NAME)
        assert index is not None
        self.index = index
        self.oracle.in_flight = set()
        self.token = 0

    def teardown(self) -> None:
        self.few.stop()

    @invariant()
    def invariants_hold(self) -> None:
        self.index.check()
        assert list(self.index.state.held) == sorted(self.oracle.held)
        assert list(self.index.state.acknowledged) == sorted(self.oracle.acknowledged)
        moved = sorted((at, *one) for one, at in self.oracle.moved.items())
        assert sorted(self.index.state.moved.snapshot().entries()) == moved
        assert self.index.state.generation == self.oracle.generation
        assert self.oracle.same_width(self.index)
        due = self.index.timeline.next_due_ms()
        first = self.oracle.due(1 << 60)
        assert not first or (due is not None and due <= first[0][0])
        self.tide_is_true()

    def tide_is_true(self) -> None:
        """As many held entries in each bucket as the oracle has, but for those said to be inexact."""
        outline = self.index.outline()
        last_ms = outline.last_ms
        assert not self.oracle.held or (last_ms is not None and last_ms >= max(self.oracle.held.values()))
        for borders_ms in TIDE_BORDERS_MS:
            edges = START_MS + np.array(borders_ms, dtype=np.int64)
            true = np.bincount(
                np.searchsorted(edges, list(self.oracle.held.values()), side="right"),
                minlength=len(edges) + 1,
            ).tolist()
            before, counts, after, inexact = outline.tide(edges)
            assert ([before, *counts.tolist(), after], inexact) == (true, 0)
            assert outline.tide(edges, self.borders)[3] == 0
            assert len(self.borders) <= BORDERS
            for decoded_max, borders in ((-1, None), (3, None), (3, self.borders)):
                with patch.multiple(tide, EXACT_MAX=-1, DECODED_MAX=decoded_max, READ_COST=0):
                    before, counts, after, inexact = outline.tide(edges, borders)
                off = [abs(one - other) for one, other in zip([before, *counts, after], true, strict=True)]
                assert max(off) <= inexact
        few = PositionSet.of(itertools.islice(self.oracle.held, 3))
        assert list(outline.find(few)) == sorted((self.oracle.held[one], *one) for one in few)
        self.pages_are_true()

    def pages_are_true(self) -> None:
        """Every held entry once, at the time that holds; without moved ones, those at their own times."""
        for with_moved in (True, False):
            reader, key, found = self.index.page_reader(with_moved=with_moved), FIRST_KEY, []
            while True:
                page = reader.after(key, 7, strict=True)
                found += list(page.entries.take(self.index.state.held.contains(page.entries)))
                if page.last is None:
                    break
                key = page.last
            left_out = set() if with_moved else self.oracle.moved.keys()
            held = self.oracle.held.items()
            assert found == sorted((at, *one) for one, at in held if one not in left_out)


IndexMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestIndexMachine = IndexMachine.TestCase
