"""The last teller of an index: kept in the journal, by a persist, and through replays."""

from __future__ import annotations

import pytest

from tests.support.catalogs import NAME, damage, opened, reopened, spread, stored
from tidegate.index.format import keys
from tidegate.index.state.claim import LOST, UNKNOWN, Claim
from tidegate.index.store import MemoryStore

FIRST, NEXT = Claim(4, 0xFFFF_FFFF), Claim(5, 1)


def test_nobody_is_known_at_first() -> None:
    _, index = opened(MemoryStore())
    assert index.state.claim == UNKNOWN


@pytest.mark.parametrize("persisted", [False, True])
@pytest.mark.parametrize("last", [NEXT, Claim(3, 7), UNKNOWN], ids=["next", "put back", "unknown"])
def test_the_last_owner_is_stored(last: Claim, *, persisted: bool) -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    for claim in (FIRST, last):
        index.begin_claim(claim)
        if persisted:
            catalog.persist(NAME)
    catalog.commit()
    _, index = reopened(store)
    assert index.state.claim == last
    index.check()


@pytest.mark.parametrize("kind", [keys.STATE, keys.JOURNAL])
@pytest.mark.parametrize("persisted_since", [False, True])
def test_damage_makes_the_last_owner_unknown(kind: bytes, *, persisted_since: bool) -> None:
    """Another history may have come between, and the index cannot tell any more."""
    store = MemoryStore()
    catalog, index = opened(store)
    index.begin_claim(FIRST)
    index.add(spread(10, 1_000))
    catalog.persist(NAME)
    index.begin_claim(NEXT)
    catalog.commit()
    if kind == keys.STATE:
        catalog.persist(NAME)
    ((key, _),) = stored(store, kind)
    damage(store, key)
    catalog, index = reopened(store)
    if persisted_since:
        catalog.persist(NAME)
        _, index = reopened(store)
    assert index.state.claim == LOST


def test_a_damaged_addition_leaves_the_last_owner_known() -> None:
    store = MemoryStore()
    catalog, index = opened(store)
    index.begin_claim(FIRST)
    catalog.commit()
    index.add(spread(10, 1_000))
    catalog.commit()
    damage(store, stored(store, keys.JOURNAL)[-1][0])
    _, index = reopened(store)
    assert index.state.claim == FIRST


def test_the_same_owner_again_writes_nothing() -> None:
    catalog, index = opened(MemoryStore())
    token = index.begin_claim(FIRST)
    assert index.begin_claim(FIRST) == token
    catalog.commit()
    assert index.own_journal.records == 1


@pytest.mark.parametrize("claim", [Claim(-1, 0), Claim(1 << 63, 0), Claim(1, -1), Claim(1, 1 << 32)])
def test_a_claim_has_bounds(claim: Claim) -> None:
    _, index = opened(MemoryStore())
    with pytest.raises(ValueError, match="63 bits and a number of 32"):
        index.begin_claim(claim)
