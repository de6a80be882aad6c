"""Recovery of many subscriptions at once: each gets what is its own, and strangers' keys go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.catalogs import INCARNATION, NAME, OPTIONS, START_MS, spread, stored
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.clock import ManualClock
from tidegate.index.format import keys
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, MemoryStore


class Past(NamedTuple):
    """The fate of a subscription before the store is opened.

    before, after: journal records before its persist, if it had one, and after. left: superfluous records are
    still there. named: its identity is.
    """

    before: int
    persisted: bool
    left: bool
    after: int
    named: bool


_past = st.builds(Past, st.integers(0, 3), st.booleans(), st.booleans(), st.integers(0, 3), st.booleans())


def name_of(number: int) -> SubscriptionName:
    return NAME._replace(subscription=f"s{number}")


def lived(store: MemoryStore, pasts: Sequence[Past]) -> dict[int, PositionSet]:
    """Let subscriptions have these pasts; what each holds, by its id."""
    catalog = Catalog.open(store, ManualClock(START_MS), OPTIONS)
    held = {}
    batch = Batch()
    for number, past in enumerate(pasts):
        index = catalog.subscription(name_of(number), INCARNATION)
        catalog.commit()
        for ledger_id in range(past.before):
            index.add(spread(3, 1_000, ledger_id=ledger_id))
            catalog.commit()
        if past.persisted:
            older = [
                row for row in stored(store, keys.JOURNAL) if id_of(row) == index.own_journal.subscription_id
            ]
            catalog.persist(index.name)
            for key, value in older if past.left else ():
                batch.put(key, value)
        for ledger_id in range(past.after):
            index.acknowledge(PositionSet.of([(ledger_id, 1)]))
            index.add(spread(2, 1_000, ledger_id=10 + ledger_id))
            catalog.commit()
        if not past.named:
            batch.delete(keys.subscription_key(keys.IDENTITY, index.own_journal.subscription_id))
        held[index.own_journal.subscription_id] = index.state.held.snapshot()
    store.write(batch, sync=True)
    return held


def id_of(row: tuple[bytes, bytes]) -> int:
    return keys.subscription_id_of(row[0])


@given(st.lists(_past, max_size=6))
@settings(max_examples=150, deadline=None)
def test_each_gets_what_is_its_own_and_what_is_nobodys_goes(pasts: list[Past]) -> None:
    store = MemoryStore()
    held = lived(store, pasts)
    in_use = {id_of(row) for kind in (keys.IDENTITY, *keys.SUBSCRIPTION_KINDS) for row in stored(store, kind)}
    store.close()
    catalog = Catalog.open(store.reopen(), ManualClock(START_MS), OPTIONS)
    assert {index.name for index in catalog} == {name_of(at) for at, past in enumerate(pasts) if past.named}
    for index in catalog:
        past = pasts[int(index.name.subscription[1:])]
        assert index.state.held == held[index.own_journal.subscription_id]
        assert not index.damaged
        assert index.own_journal.records == 2 * past.after + (0 if past.persisted else past.before)
        index.check()
    assert catalog.stats().corrupt_records == 0
    ids = {index.own_journal.subscription_id for index in catalog}
    for kind in keys.SUBSCRIPTION_KINDS:
        assert {id_of(row) for row in stored(store, kind)} <= ids, kind
    following = catalog.subscription(NAME, INCARNATION)
    assert following.own_journal.subscription_id > max(in_use, default=0)
