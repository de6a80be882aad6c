"""Acknowledgements beyond a cursor's move forward stay: over an unload, and a kill.

Pulsar stores some moves as it stores a reset, without the cursor's properties; the resets of
test_35_resets.py must be noticed all the same. The table of the ways: docs/failover.md.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support.cluster import RETAINED, Cluster
from tests.support.cursor_moves import (
    ON_TOPIC,
    STORED_AFTER_S,
    WRITTEN_AFTER_S,
    Moves,
    all_of_topic,
    every_subscription,
    evict_by_age,
    evict_by_size,
    truncate,
)
from tests.support.lane import Lane

ENDS = ["unloaded", "killed"]
NAMES = [
    one.name
    for one in [*every_subscription(), *(each for move in sorted(ON_TOPIC) for each in all_of_topic(move))]
]
_EVICTED = "public/evicted"
_AGED = "public/aged"


class Walk:
    """The fate of each subscription, for each end."""

    def __init__(self, cluster: Cluster) -> None:
        self.errors: dict[tuple[str, str], AssertionError | None] = {}
        cluster.admin.create_namespace(_EVICTED)
        cluster.admin.create_namespace(_AGED)
        self._cluster = cluster
        self._moves = {end: self._moved(end) for end in ENDS}
        time.sleep(STORED_AFTER_S)
        for each in (*self._moves["unloaded"], *self._moves["killed"]):
            each.settle()
        for moves in self._moves["unloaded"]:
            cluster.admin.unload(moves.lane.topic)
        self._check("unloaded")
        time.sleep(WRITTEN_AFTER_S)
        cluster.broker.kill()
        for moves in self._moves["killed"]:
            moves.leave()
        cluster.start_broker()
        self._check("killed")

    def _moved(self, end: str) -> list[Moves]:
        walked = Moves(Lane(self._cluster, f"moves-{end}", namespace=RETAINED), every_subscription())
        walked.acknowledge_every_other(parted=True)
        walked.move()
        evicted = Moves(Lane(self._cluster, f"evicted-{end}", namespace=_EVICTED), all_of_topic("quota"))
        evicted.acknowledge_every_other()
        evict_by_size(evicted, _EVICTED)
        aged = Moves(Lane(self._cluster, f"aged-{end}", namespace=_AGED), all_of_topic("quota-by-age"))
        aged.acknowledge_every_other(parted=True, other_ledger=True)
        evict_by_age(aged, _AGED)
        cut = Moves(Lane(self._cluster, f"truncated-{end}", namespace=RETAINED), all_of_topic("truncate"))
        cut.acknowledge_every_other()
        truncate(cut)
        return [walked, evicted, aged, cut]

    def _check(self, end: str) -> None:
        for moves in self._moves[end]:
            moves.leave()
            moves.come_back()
            for one in moves.subscriptions:
                try:
                    moves.check(one)
                    self.errors[end, one.name] = None
                except AssertionError as error:
                    self.errors[end, one.name] = error
            moves.lane.close()


@pytest.fixture(scope="module")
def walk(cluster: Cluster) -> Iterator[Walk]:
    """All at once: one broker, one kill."""
    yield Walk(cluster)
    cluster.repair()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_acknowledged_beyond_a_forward_move_stays_so(walk: Walk, name: str, end: str) -> None:
    error = walk.errors[end, name]
    if error is not None:
        raise error
