"""`check` on an index in which an invariant of a part was broken by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.catalogs import NAME, OTHER, START_MS, opened, spread
from tidegate.index.errors import CheckError
from tidegate.index.format import keys
from tidegate.index.store import MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline.crowding import Crowding
from tidegate.index.timeline.slices import Block, Slice

GONE = 1_000_000
"""An id that no block has."""


@pytest.fixture
def index() -> DelayIndex:
    """Has blocks, one of them loaded, bitmaps, and records in the journal: some are taken, some wait."""
    catalog, index = opened(MemoryStore())
    index.add(spread(1_000, 10_000))
    index.acknowledge(index.state.held.within(0, 0))
    catalog.commit()
    catalog.persist(NAME)
    assert len(index.timeline.pop_due(START_MS + 5_000, 10)) == 10
    index.add(spread(10, 10_000, ledger_id=6))
    catalog.subscription(OTHER, bytes(16)).add(spread(10, 10_000))
    assert catalog.journal.begin_commit() is not None
    index.add(spread(10, 10_000, ledger_id=7))
    index.check()
    return index


def loaded(index: DelayIndex) -> Block:
    return next(
        block for each in index.timeline.slices for block in each.blocks.values() if block.run is not None
    )


def nobody_names_an_absent_block(index: DelayIndex) -> None:
    index._absent._ids.add(GONE)


def nobody_deletes_what_has_come(index: DelayIndex) -> None:
    index._absent._arrived[GONE] = b""


def a_block_is_an_orphan(index: DelayIndex) -> None:
    block = loaded(index)
    key = keys.block_key(index.own_journal.subscription_id, block.of.id, block.descriptor.block_id)
    index._persister._leftovers.orphan([key])


def a_bitmap_is_an_orphan(index: DelayIndex) -> None:
    ((ledger_id, version),) = index._persister._held_versions.items()
    key = keys.bitmap_key(keys.HELD, index.own_journal.subscription_id, ledger_id, version)
    index._persister._leftovers.orphan([key])


def a_slice_was_cleared(index: DelayIndex) -> None:
    index._persister._leftovers.clear([loaded(index).of.id])


def a_doubt_is_settled_twice(index: DelayIndex) -> None:
    index._quarantine.doubt()
    index._quarantine.done([], 2)


def a_taken_record_is_joined_with(index: DelayIndex) -> None:
    writing = index._context.journal._writing
    assert writing is not None
    index.own_journal._tail = writing.records[0]


def a_record_is_forgotten(index: DelayIndex) -> None:
    index._context.journal._pending.clear()


def no_commit_would_take_it(index: DelayIndex) -> None:
    journal = index._context.journal
    journal.appended_token = journal._writing.token if journal._writing is not None else 0


def more_is_durable_than_was_taken(index: DelayIndex) -> None:
    index._context.journal.durable_token = index._context.journal.appended_token


def a_journal_is_longer_than_all(index: DelayIndex) -> None:
    index._context.journal.size_bytes = 0


def an_empty_journal_has_bytes(index: DelayIndex) -> None:
    index._context.journal.persisted(index.own_journal, index.own_journal.last_sequence, 0, None)


def a_slice_that_is_gone_is_crowded(index: DelayIndex) -> None:
    gone = Slice(loaded(index).of.id, loaded(index).of.load)
    index.timeline.crowded._heap[gone] = Crowding(-9, 0)


def a_crowded_slice_has_other_runs(index: DelayIndex) -> None:
    crowded, each = index.timeline.crowded, loaded(index).of
    crowded._merge_runs = 1
    for one in index.timeline.slices:
        crowded.rank(one)
    crowded.check(index.timeline.slices)
    crowded._heap[each] = Crowding(-2, each.id.start_ms)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (nobody_names_an_absent_block, "absent blocks that no slice names"),
        (nobody_deletes_what_has_come, "nobody deletes them"),
        (a_block_is_an_orphan, "orphans that count"),
        (a_bitmap_is_an_orphan, "orphans that count"),
        (a_slice_was_cleared, "are back"),
        (a_doubt_is_settled_twice, "more doubts"),
        (a_taken_record_is_joined_with, "open to joins"),
        (a_record_is_forgotten, "is the last"),
        (no_commit_would_take_it, "no commit would take"),
        (more_is_durable_than_was_taken, "tokens"),
        (a_journal_is_longer_than_all, "bytes of 0"),
        (an_empty_journal_has_bytes, "no record"),
        (a_slice_that_is_gone_is_crowded, "0 slices are crowded, 1 are known"),
        (a_crowded_slice_has_other_runs, "counts of runs differ"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_what_is_broken_is_said(index: DelayIndex, broken: Callable[[DelayIndex], None], said: str) -> None:
    broken(index)
    with pytest.raises(CheckError, match=said):
        index.check()
