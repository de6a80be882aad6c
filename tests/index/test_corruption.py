"""Every stored kind damaged in turn: reported, kept aside, and no entry lost silently."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyroaring import BitMap

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    START_MS,
    LaterExecutor,
    damage,
    drained,
    opened,
    overwrite,
    positions_of,
    reopened,
    spread,
    stored,
)
from tests.support.stores import FailingStore, UnreadableStore
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import (
    DamagedDirectoryError,
    ForeignDirectoryError,
    NewerFormatError,
    StorageError,
)
from tidegate.index.format import keys
from tidegate.index.format.envelope import FORMAT_VERSION, wrap
from tidegate.index.state.positions import PositionSet
from tidegate.index.state.roaring import serialize_bitmap
from tidegate.index.store import Batch, MemoryStore
from tidegate.index.subscription.delay_index import DelayIndex

ENTRIES = spread(1_000, 10_000)


def persisted(store: MemoryStore) -> tuple[Catalog, DelayIndex]:
    """1,000 entries in blocks, some of them acknowledged."""
    catalog, index = opened(store)
    index.add(ENTRIES)
    index.acknowledge(PositionSet.of((5, at) for at in range(20)))
    catalog.commit()
    catalog.persist(NAME)
    return catalog, index


def settle(catalog: Catalog) -> None:
    for _ in range(4):
        catalog.maintain(START_MS)


def test_a_corrupt_block_is_quarantined_and_its_positions_are_unheld(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    catalog, index = persisted(store)
    before = index.state.held.snapshot()
    key, _ = stored(store, keys.BLOCK)[3]
    damage(store, key)
    with caplog.at_level(logging.ERROR):
        popped = drained(index)
    assert "read again" in caplog.text
    settle(catalog)
    assert catalog.unheld() == [index]
    lost = index.take_unheld()
    assert lost
    assert not catalog.unheld()
    assert index.state.held == before.difference(lost)
    assert positions_of(popped) == index.state.held
    assert not index.take_unheld()
    assert index.stats().blocks_quarantined == 1
    assert keys.quarantine_key(1, key) in dict(stored(store, keys.QUARANTINE))
    assert store.get(key) is None
    index.check()
    # They are read again and added again.
    index.add(Entries.of((START_MS, *position) for position in lost))
    assert positions_of(drained(index)) == lost
    catalog, index = reopened(store)
    assert index.state.held == before.difference(lost)  # the second adding was not committed
    index.check()


def test_a_missing_block_is_found_by_a_merge_too() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    for part in range(OPTIONS.merge_runs - 1):
        index.add(spread(100, 1_000, ledger_id=part))
        catalog.persist(NAME)
    key, _ = stored(store, keys.BLOCK)[0]
    batch = Batch()
    batch.delete(key)
    store.write(batch, sync=True)
    index.add(spread(100, 1_000, ledger_id=90))
    catalog.persist(NAME)
    settle(catalog)
    assert index.take_unheld() == PositionSet.of((0, at) for at in range(100))
    assert len(drained(index)) == 100 * (OPTIONS.merge_runs - 1)
    index.check()


def test_two_corrupt_blocks_at_once() -> None:
    store = MemoryStore()
    catalog, index = persisted(store)
    before = index.state.held.snapshot()
    for key, _ in stored(store, keys.BLOCK)[2:4]:
        damage(store, key)
    popped = drained(index)
    settle(catalog)
    assert index.state.held == before.difference(index.take_unheld()) == positions_of(popped)
    assert len(stored(store, keys.QUARANTINE)) == 2
    index.check()


def test_damage_in_a_slice_that_is_finished_and_in_the_next_one() -> None:
    """The persist that looks for the other one's losses drops the finished one."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(50, 2_000))
    catalog.persist(NAME)
    first, second = (key for key, _ in stored(store, keys.BLOCK))
    done = drained(index, START_MS + 999)
    index.acknowledge(positions_of(done))
    left = index.state.held.snapshot()
    assert index.stats().slices[0].state == "finished"
    damage(store, first)
    damage(store, second)
    assert drained(index) == []
    settle(catalog)
    assert index.take_unheld() == left
    assert not index.state.held
    assert index.stats().slices_on_disk == 0
    assert catalog.stats().corrupt_records == 1, "what is dropped is not read"
    index.check()


def test_a_corrupt_slice_record_is_rebuilt_from_its_blocks() -> None:
    store = MemoryStore()
    _, before = persisted(store)
    damage(store, stored(store, keys.SLICE)[2][0])
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    settle(catalog)
    assert index.state.held == before.state.held
    assert not index.take_unheld()
    assert positions_of(drained(index)) == before.state.held
    index.check()


def test_a_corrupt_held_bitmap_is_not_held() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(100, 1_000, ledger_id=1))
    index.add(spread(100, 1_000, ledger_id=2))
    catalog.persist(NAME)
    damage(store, stored(store, keys.HELD)[0][0])
    catalog, index = reopened(store)
    assert index.state.held == PositionSet.of((2, at) for at in range(100))
    index.check()
    index.add(spread(100, 1_000, ledger_id=1))
    assert len(drained(index)) == 200
    settle(catalog)
    catalog.persist(NAME)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 0
    assert len(index.state.held) == 200


@pytest.mark.parametrize("body", [b"no bitmap", serialize_bitmap(BitMap([1])) + b"\0", b""])
def test_a_held_bitmap_that_is_none_leaves_the_others_as_they_are(body: bytes) -> None:
    """Its checksum is right: only reading shows the fault."""
    store = MemoryStore()
    catalog, index = opened(store)
    for ledger_id in range(1, 4):
        index.add(spread(100, 1_000, ledger_id=ledger_id))
    catalog.persist(NAME)
    overwrite(store, stored(store, keys.HELD)[1][0], wrap(keys.HELD, body))
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    assert index.state.held == PositionSet.of((ledger_id, at) for ledger_id in (1, 3) for at in range(100))
    index.check()


def test_a_corrupt_acknowledged_bitmap_is_forgotten() -> None:
    store = MemoryStore()
    persisted(store)
    damage(store, stored(store, keys.ACKNOWLEDGED)[0][0])
    catalog, index = reopened(store)
    assert not index.state.acknowledged
    assert len(index.state.held) == 980
    settle(catalog)
    index.check()


@pytest.mark.parametrize("kind", [keys.HELD, keys.ACKNOWLEDGED])
def test_the_next_persist_puts_another_in_place_of_a_corrupt_bitmap(kind: bytes) -> None:
    """Though nothing of its ledger changes any more: else each start would meet it again."""
    store = MemoryStore()
    persisted(store)
    damage(store, stored(store, kind)[0][0])
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    settle(catalog)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 0
    index.check()


def test_a_corrupt_carry_over_is_unheld() -> None:
    store = MemoryStore()
    options = replace(OPTIONS, carry_ms=2_000)
    catalog, index = opened(store, options)
    index.add(spread(300, 10_000))
    catalog.persist(NAME)
    carried = index.stats().staged
    assert 0 < carried < 300
    damage(store, stored(store, keys.CARRY)[0][0])
    catalog, index = reopened(store, options)
    settle(catalog)
    assert len(index.take_unheld()) == carried
    assert len(drained(index)) == 300 - carried
    index.check()


def test_a_corrupt_state_loses_no_entry() -> None:
    store = MemoryStore()
    persisted(store)
    damage(store, stored(store, keys.STATE)[0][0])
    catalog, index = reopened(store)
    assert len(index.state.held) == 980
    index.add(spread(50, 1_000, ledger_id=77))
    catalog.persist(NAME)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 0
    assert len(drained(index)) == 1_030
    index.check()


@pytest.mark.parametrize("damaged", [keys.STATE, keys.STATE + keys.INTENT, keys.SLICE])
def test_a_persist_that_was_cut_off_does_not_count_when_what_it_builds_on_is_damaged(damaged: bytes) -> None:
    for writes_left in range(40):
        store = FailingStore()
        options = replace(OPTIONS, write_piece_bytes=200)
        catalog, index = opened(store, options)
        index.add(spread(100, 3_000))
        catalog.persist(NAME)
        index.add(Entries.of((START_MS + at, 5, 100 + at) for at in range(100)))
        catalog.commit()
        store.writes_left = writes_left
        try:
            catalog.persist(NAME)
            done = True
        except StorageError:
            done = False
        for kind in damaged:
            for key, _ in stored(store.memory, bytes([kind])):
                damage(store.memory, key)

        catalog, index = reopened(store.memory, options)
        settle(catalog)

        index.check()
        unheld = index.take_unheld()
        assert positions_of(drained(index)) == index.state.held
        assert len(index.state.held) + len(unheld) == 200
        assert not unheld or keys.INTENT in damaged
        if done:
            return
    pytest.fail("no persist succeeded: the writes are more than expected")


def test_a_state_and_a_carry_over_that_cannot_be_read_are_as_corrupt_ones() -> None:
    store = UnreadableStore()
    options = replace(OPTIONS, carry_ms=2_000)
    catalog, index = opened(store, options)
    index.add(spread(300, 10_000))
    catalog.persist(NAME)
    carried = index.stats().staged
    store.damaged = {stored(store, kind)[0][0] for kind in (keys.STATE, keys.CARRY)}
    catalog, index = reopened(store, options)
    assert catalog.stats().corrupt_records == 2
    settle(catalog)
    assert len(index.take_unheld()) == carried > 0
    assert len(drained(index)) == 300 - carried
    index.check()


def test_a_corrupt_identity_forgets_the_subscription_and_keeps_the_others() -> None:
    store = MemoryStore()
    catalog, index = persisted(store)
    other = catalog.subscription(NAME._replace(subscription="other"), INCARNATION)
    other.add(spread(10, 1_000))
    catalog.commit()
    damage(store, stored(store, keys.IDENTITY)[0][0])
    store.close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), OPTIONS)
    assert catalog.get(NAME) is None
    kept = catalog.get(other.name)
    assert kept is not None and len(kept.state.held) == 10
    assert not stored(store, keys.BLOCK)
    again = catalog.subscription(NAME, INCARNATION)
    again.add(ENTRIES)
    assert len(drained(again)) == 1_000
    assert again.own_journal.subscription_id not in (
        index.own_journal.subscription_id,
        kept.own_journal.subscription_id,
    )


def journaled(store: MemoryStore) -> list[bytes]:
    """Keys of a journal with one record of each type, each in its own commit."""
    catalog, index = opened(store)
    changes: list[Callable[[], int]] = [
        lambda: index.add(spread(10, 1_000, ledger_id=1)),
        lambda: index.acknowledge(PositionSet.of([(1, 0), (1, 1), (2, 0)])),
        lambda: index.unacknowledge(PositionSet.of([(1, 1)])),
        lambda: index.mark_delete(1, 0),
        lambda: index.set_slice_width(77),
        lambda: index.add(spread(10, 1_000, ledger_id=2)),
    ]
    for change in changes:
        change()
        catalog.commit()
    return [key for key, _ in stored(store, keys.JOURNAL)]


def test_a_corrupt_add_leaves_only_its_own_positions_unheld() -> None:
    store = MemoryStore()
    damage(store, journaled(store)[0])
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    assert index.state.held == PositionSet.of((2, at) for at in range(1, 10))
    assert index.state.acknowledged == PositionSet.of([(2, 0)])
    assert index.state.mark == (1, 0)
    index.check()


def test_a_corrupt_acknowledgement_costs_redelivery_only() -> None:
    store = MemoryStore()
    damage(store, journaled(store)[1])
    _, index = reopened(store)
    assert not index.state.acknowledged
    # (2, 0) was acknowledged when it was added, so the ADD record lacks it: it will be read again.
    assert (1, 1) in index.state.held and (2, 0) not in index.state.held


@pytest.mark.parametrize("which", [2, 3, 4])
def test_another_corrupt_record_forgets_what_could_hide_an_entry(which: int) -> None:
    """Whatever an unreadable UNACK or MARK_DELETE contained: every position can be added again."""
    store = MemoryStore()
    damage(store, journaled(store)[which])
    catalog, index = reopened(store)
    assert not index.state.acknowledged
    index.add(Entries.of((START_MS, *position) for position in ((1, 1), (2, 0))))
    assert (1, 1) in index.state.held and (2, 0) in index.state.held
    catalog.persist(NAME)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 0
    index.check()


def test_a_missing_record_is_noticed() -> None:
    store = MemoryStore()
    journal = journaled(store)
    batch = Batch()
    batch.delete(journal[2])
    store.write(batch, sync=True)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    assert not index.state.acknowledged


def test_an_old_acknowledgement_does_not_count_when_the_state_is_lost() -> None:
    """It was written late, after the persist that contains it, and its revocation is deleted."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    catalog.commit()
    index.acknowledge(PositionSet.of([(5, 1)]))
    catalog.commit()
    late = stored(store, keys.JOURNAL)[1]
    index.unacknowledge(PositionSet.of([(5, 1)]))
    catalog.persist(NAME)
    overwrite(store, *late)
    damage(store, stored(store, keys.STATE)[0][0])
    catalog, index = reopened(store)
    assert not index.state.acknowledged
    index.add(spread(10, 1_000))
    assert (5, 1) in index.state.held
    index.check()


def test_a_record_of_an_unknown_type_is_taken_for_the_worst() -> None:
    store = MemoryStore()
    journal = journaled(store)
    subscription_id = keys.subscription_id_of(journal[0])
    overwrite(store, keys.journal_key(subscription_id, len(journal) + 1, 99), wrap(keys.JOURNAL, b"?"))
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records == 1
    assert not index.state.acknowledged


def test_a_newer_format_is_refused() -> None:
    store = MemoryStore()
    persisted(store)
    newer = wrap(b"\0", (FORMAT_VERSION + 1).to_bytes(4, "little"))
    overwrite(store, keys.FORMAT_KEY, newer)
    before = list(store.scan(b"", b"\xff" * 40))
    with pytest.raises(NewerFormatError, match="install the newer Tidegate"):
        opened(store)
    assert list(store.scan(b"", b"\xff" * 40)) == before


def test_a_damaged_format_version_is_refused() -> None:
    store = MemoryStore()
    persisted(store)
    damage(store, keys.FORMAT_KEY)
    with pytest.raises(DamagedDirectoryError) as caught:
        opened(store)
    for words in (str(store), "its format version", "fails its checksum", "move the directory away"):
        assert words in str(caught.value)


def test_a_format_version_that_cannot_be_read_is_refused() -> None:
    store = UnreadableStore()
    persisted(store)
    store.damaged = {keys.FORMAT_KEY}
    with pytest.raises(DamagedDirectoryError, match="move the directory away"):
        opened(store)


def test_foreign_data_is_refused() -> None:
    store = MemoryStore()
    overwrite(store, b"someone", b"else")
    with pytest.raises(ForeignDirectoryError, match="choose another data directory") as caught:
        opened(store)
    assert str(store) in str(caught.value)
    assert list(store.scan(b"", b"\xff" * 40)) == [(b"someone", b"else")]


@pytest.mark.parametrize("audits", [False, True])
def test_a_doubt_that_comes_up_during_a_persist_is_looked_into_by_the_next_one(audits: bool) -> None:
    """Else its positions would stay held for good, and nobody would hand them out or read them again."""
    executor = LaterExecutor()
    options = replace(OPTIONS, staging_budget_bytes=0)
    catalog = Catalog.open(MemoryStore(), ManualClock(START_MS), options, executor)
    index = catalog.subscription(NAME, INCARNATION)
    index.add(ENTRIES)
    if audits:
        index.doubt()
    catalog.commit()
    catalog.maintain(START_MS)
    assert executor.waiting
    # A half-made change: the position is held, and nobody has its entry.
    index.state.hold(Entries.of([(START_MS, 7, 1)]))
    index.doubt()
    for _ in range(4):
        executor.run_all()
        catalog.commit()
        catalog.maintain(START_MS)
    assert list(index.take_unheld()) == [(7, 1)]
    assert (7, 1) not in index.state.held
    index.check()
