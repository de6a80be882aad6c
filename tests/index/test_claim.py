"""Who told an index what it has last: kept in the journal, by a persist, and through replays."""

from __future__ import annotations

import pytest

from tests.support.catalogs import NAME, opened, reopened
from tidegate.index.claim import UNKNOWN, Claim
from tidegate.index.store import MemoryStore

FIRST, NEXT = Claim(4, 0xFFFF_FFFF), Claim(5, 1)


def test_nobody_is_known_at_first() -> None:
    _, index = opened(MemoryStore())
    assert index.claim == UNKNOWN


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
    assert index.claim == last
    index.check()


def test_the_same_owner_again_writes_nothing() -> None:
    catalog, index = opened(MemoryStore())
    token = index.begin_claim(FIRST)
    assert index.begin_claim(FIRST) == token
    catalog.commit()
    assert index.log.records == 1


@pytest.mark.parametrize("claim", [Claim(-1, 0), Claim(1 << 63, 0), Claim(1, -1), Claim(1, 1 << 32)])
def test_a_claim_has_bounds(claim: Claim) -> None:
    _, index = opened(MemoryStore())
    with pytest.raises(ValueError, match="63 bits and a number of 32"):
        index.begin_claim(claim)
