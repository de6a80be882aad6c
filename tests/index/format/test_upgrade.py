"""A directory of an older format is opened, upgraded in one write, and has the same content."""

from __future__ import annotations

import pytest

from tests.support.catalogs import (
    INCARNATION,
    NAME,
    OPTIONS,
    OTHER,
    START_MS,
    damage,
    drained,
    opened,
    overwrite,
    reopened,
    spread,
    stored,
)
from tests.support.golden_format import golden
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.errors import NewerFormatError, StorageError
from tidegate.index.format import keys
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.manifest import State
from tidegate.index.format.upgrade import decode_state_1, decode_state_2, downgrade, format_record
from tidegate.index.options import IndexOptions
from tidegate.index.state.claim import UNKNOWN, Claim
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore

AUTOMATIC = IndexOptions(slice_width_ms=1_000, slice_width_auto=True, carry_ms=0, block_entries=100)


STATE_BYTES = {1: 48, 2: 49, 3: 57, 4: 73}
OLD = pytest.mark.parametrize("version", STATE_BYTES)
WITHOUT_SEAL = pytest.mark.parametrize("version", [1, 2])


def downgraded(store: MemoryStore, version: int) -> MemoryStore:
    """The same directory as written by a Tidegate of an older format."""
    store.close()
    store = store.reopen()
    for key, value in stored(store, keys.STATE):
        body = bytes(unwrap(keys.STATE, value))[: STATE_BYTES[version]]
        overwrite(store, key, wrap(keys.STATE, body))
    overwrite(store, keys.FORMAT_KEY, golden(f"v{version}_format").value)
    return store


def an_old_directory(version: int) -> MemoryStore:
    store = MemoryStore()
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    for name in (NAME, OTHER):
        catalog.subscription(name, INCARNATION).add(spread(500, 20_000))
        catalog.persist(name)
    catalog.subscription(NAME, INCARNATION).add(spread(100, 20_000, ledger_id=6, seed=2))
    catalog.commit()
    return downgraded(store, version)


@pytest.mark.parametrize("options", [OPTIONS, AUTOMATIC])
def test_a_directory_of_format_1_is_upgraded(options: IndexOptions) -> None:
    store = an_old_directory(1)
    before = {key: decode_state_1(value, False) for key, value in stored(store, keys.STATE)}
    catalog, index = reopened(store, options)
    assert len(catalog) == len(before) == 2
    assert store.get(keys.FORMAT_KEY) == format_record(FORMAT_VERSION)
    for key, value in stored(store, keys.STATE):
        assert State.decode(value) == before[key]._replace(slice_width_auto=options.slice_width_auto)
    stats = index.stats()
    assert (stats.slice_width_ms, stats.slice_width_auto) == (1_000, options.slice_width_auto)
    index.check()
    assert len(drained(index)) == 600


def test_a_directory_of_format_2_is_upgraded() -> None:
    store = an_old_directory(2)
    before = {key: decode_state_2(value) for key, value in stored(store, keys.STATE)}
    catalog, index = reopened(store, AUTOMATIC)
    assert len(catalog) == len(before) == 2
    assert store.get(keys.FORMAT_KEY) == format_record(FORMAT_VERSION)
    assert {key: State.decode(value) for key, value in stored(store, keys.STATE)} == before
    assert not index.stats().slice_width_auto, "what the settings say now does not matter"
    index.check()
    assert len(drained(index)) == 600


def test_what_downgrade_leaves_is_a_directory_of_the_format_before() -> None:
    """The drill `upgrade` rewrites a real directory with it."""
    store, before = MemoryStore(), an_old_directory(FORMAT_VERSION - 1)
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    for name in (NAME, OTHER):
        catalog.subscription(name, INCARNATION).add(spread(500, 20_000))
        catalog.persist(name)
    store.close()
    store = store.reopen()
    assert downgrade(store) == 2
    assert stored(store, keys.STATE) == stored(before, keys.STATE)
    assert store.get(keys.FORMAT_KEY) == before.get(keys.FORMAT_KEY)


@WITHOUT_SEAL
def test_acknowledgements_of_an_older_format_are_not_believed(version: int) -> None:
    """Their seal was never written; they stay until an owner brings its own."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.add(spread(10, 1_000))
    index.acknowledge(PositionSet.of([(5, 1)]))
    catalog.persist(NAME)
    index.acknowledge(PositionSet.of([(5, 2)]))
    catalog.commit()
    _, index = reopened(downgraded(store, version))
    assert index.state.acknowledged == PositionSet.of([(5, 1), (5, 2)])
    assert index.state.generation == 0
    index.begin_generation(77)
    assert not index.state.acknowledged
    assert len(index.state.held) == 8


def test_a_directory_of_format_3_is_upgraded() -> None:
    """Its content is believed, whoever the next owner is: its last owner was never written."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.begin_generation(77)
    index.begin_claim(Claim(3, 1))
    index.add(spread(10, 1_000))
    index.acknowledge(PositionSet.of([(5, 1)]))
    catalog.persist(NAME)
    _, index = reopened(downgraded(store, 3))
    assert store.get(keys.FORMAT_KEY) == format_record(FORMAT_VERSION)
    assert {len(unwrap(keys.STATE, value)) for _, value in stored(store, keys.STATE)} == {73}
    assert (index.state.claim, index.state.generation) == (UNKNOWN, 77)
    assert index.state.acknowledged == PositionSet.of([(5, 1)])
    index.check()


def test_a_directory_of_format_4_is_upgraded() -> None:
    """It has no moved positions, and all else unchanged."""
    store = an_old_directory(4)
    before = stored(store, keys.STATE)
    _, index = reopened(store)
    assert store.get(keys.FORMAT_KEY) == format_record(FORMAT_VERSION)
    assert stored(store, keys.STATE) == before
    index.check()
    assert not index.state.moved
    assert len(drained(index)) == 600


def test_what_the_settings_said_at_the_upgrade_stays() -> None:
    store = an_old_directory(1)
    reopened(store, AUTOMATIC)
    _, index = reopened(store, OPTIONS)
    assert index.stats().slice_width_auto


@OLD
def test_an_upgrade_that_is_not_written_leaves_the_old_format(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = an_old_directory(version)
    before = stored(store, keys.STATE)

    def full(batch: Batch, *, sync: bool) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(store, "write", full)
    with pytest.raises(StorageError, match="no space left"):
        Catalog.open(store, ManualClock(START_MS), OPTIONS)
    assert stored(store, keys.STATE) == before
    assert store.get(keys.FORMAT_KEY) == golden(f"v{version}_format").value


@OLD
def test_a_corrupt_state_of_an_older_format_is_reported_as_in_any_directory(version: int) -> None:
    store = an_old_directory(version)
    (first, _), _ = stored(store, keys.STATE)
    damage(store, first)
    catalog, index = reopened(store)
    assert catalog.stats().corrupt_records >= 1
    assert len(index.state.held) == 600
    index.check()


@WITHOUT_SEAL
def test_a_state_of_an_older_format_in_a_directory_of_this_one_is_corrupt(version: int) -> None:
    store = an_old_directory(version)
    overwrite(store, keys.FORMAT_KEY, format_record(FORMAT_VERSION))
    catalog, _ = reopened(store)
    assert catalog.stats().corrupt_records >= 2


def test_a_newer_format_is_refused_and_not_touched() -> None:
    store = an_old_directory(2)
    overwrite(store, keys.FORMAT_KEY, format_record(FORMAT_VERSION + 1))
    before = stored(store, keys.STATE)
    with pytest.raises(NewerFormatError, match=f"knows formats up to {FORMAT_VERSION}"):
        Catalog.open(store, ManualClock(START_MS), OPTIONS)
    assert stored(store, keys.STATE) == before
