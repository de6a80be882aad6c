"""Acknowledgements are believed under the seal of the cursor that they were learned under, and no other."""

from __future__ import annotations

import pytest

from tests.support.catalogs import NAME, damage, opened, reopened, spread, stored
from tidegate.index.format import keys
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore

SEAL, OTHER_SEAL = 0x1234, (1 << 63) - 1
KNOWN = PositionSet.of([(5, 1), (5, 3), (9, 9)])


def acknowledged_under(seal: int, *, persisted: bool) -> MemoryStore:
    """Ten entries, three positions acknowledged, all of it durable."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.begin_generation(seal)
    index.add(spread(10, 1_000))
    index.acknowledge(KNOWN)
    catalog.commit()
    if persisted:
        catalog.persist(NAME)
    return store


@pytest.mark.parametrize("persisted", [False, True])
def test_the_same_seal_keeps_what_is_acknowledged(persisted: bool) -> None:
    catalog, index = reopened(acknowledged_under(SEAL, persisted=persisted))
    assert index.state.generation == SEAL
    assert index.begin_generation(SEAL) <= catalog.journal.durable_token, "nothing has changed"
    assert index.state.acknowledged == KNOWN


@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize("seal", [OTHER_SEAL, 0])
def test_another_seal_forgets_it_and_keeps_the_entries(seal: int, persisted: bool) -> None:
    store = acknowledged_under(SEAL, persisted=persisted)
    catalog, index = reopened(store)
    held = index.state.held.snapshot()
    token = index.begin_generation(seal)
    assert not index.state.acknowledged
    assert index.state.held == held
    assert catalog.commit() >= token
    for _ in range(2):
        catalog, index = reopened(store)
        assert not index.state.acknowledged
        assert index.state.generation == seal
        assert index.state.held == held
        catalog.persist(NAME)
        store = store.reopen()


def test_no_seal_is_never_the_same_as_none() -> None:
    _, index = reopened(acknowledged_under(0, persisted=True))
    index.begin_generation(0)
    assert not index.state.acknowledged


def test_what_is_acknowledged_afterwards_counts_under_the_new_one() -> None:
    store = acknowledged_under(SEAL, persisted=True)
    catalog, index = reopened(store)
    index.begin_generation(OTHER_SEAL)
    index.acknowledge(PositionSet.of([(5, 7)]))
    catalog.commit()
    _, index = reopened(store)
    index.begin_generation(OTHER_SEAL)
    assert index.state.acknowledged == PositionSet.of([(5, 7)])


def test_a_seal_that_was_not_durable_costs_what_was_learned_under_it() -> None:
    """The process dies before the commit: the acknowledgements of the former seal are there, and are its."""
    store = acknowledged_under(SEAL, persisted=True)
    _, index = reopened(store)
    index.begin_generation(OTHER_SEAL)
    _, index = reopened(store)
    assert index.state.generation == SEAL
    assert index.state.acknowledged == KNOWN
    index.begin_generation(OTHER_SEAL)
    assert not index.state.acknowledged


def test_a_damaged_record_of_the_seal_makes_it_unknown() -> None:
    store = acknowledged_under(SEAL, persisted=False)
    damage(store, stored(store, keys.JOURNAL)[0][0])
    _, index = reopened(store)
    assert index.state.generation == 0
    index.begin_generation(SEAL)
    assert not index.state.acknowledged


def test_a_gap_in_the_journal_makes_it_unknown() -> None:
    """The record of another seal may be in the gap."""
    store = acknowledged_under(SEAL, persisted=True)
    catalog, index = reopened(store)
    index.begin_generation(OTHER_SEAL)
    catalog.commit()
    index.begin_generation(SEAL)
    catalog.commit()
    index.acknowledge(PositionSet.of([(5, 7)]))
    catalog.commit()
    batch = Batch()
    batch.delete(stored(store, keys.JOURNAL)[0][0])
    store.write(batch, sync=True)
    _, index = reopened(store)
    assert index.state.generation == 0


def test_a_damaged_state_makes_it_unknown() -> None:
    store = acknowledged_under(SEAL, persisted=True)
    damage(store, stored(store, keys.STATE)[0][0])
    _, index = reopened(store)
    assert index.state.generation == 0
    index.begin_generation(SEAL)
    assert not index.state.acknowledged


def test_a_damaged_acknowledgement_leaves_the_seal() -> None:
    """Its positions are held still: they are delivered again, and nothing else is."""
    store = acknowledged_under(SEAL, persisted=True)
    catalog, index = reopened(store)
    index.acknowledge(PositionSet.of([(5, 7)]))
    catalog.commit()
    damage(store, stored(store, keys.JOURNAL)[0][0])
    _, index = reopened(store)
    assert index.state.generation == SEAL
    assert index.state.acknowledged == KNOWN


@pytest.mark.parametrize("generation", [-1, 1 << 63])
def test_a_seal_has_63_bits(generation: int) -> None:
    _, index = opened(MemoryStore())
    with pytest.raises(ValueError, match="63 bits"):
        index.begin_generation(generation)
