"""A cluster with its metadata in Oxia: claims and seals, unloads, and kill -9 of an owner and its daemon."""

from __future__ import annotations

import pytest

from tests.support.claiming import claim_and_move
from tests.support.inbox import Inbox
from tests.support.killed_owner import kill_owner
from tests.support.lane import Lane
from tests.support.oxia import NOT_NAMED, PROGRAM, Oxia
from tests.support.two_brokers import TwoBrokers

pytestmark = pytest.mark.skipif(not PROGRAM, reason=NOT_NAMED)

INDEX_LOG = "bookkeeper"
ON_OXIA = True
STILL_S, TAKEN_S = 30.0, 150.0
# Sessions outlive the standstill.
CONF = {"metadataStoreSessionTimeoutMillis": "60000"}
_FAR_MS = 3_600_000
_FAR = 2_000
_UNLOADS = 5


def test_claims_and_seals_wait_and_deliveries_do_not(two: TwoBrokers, lane: Lane, oxia: Oxia) -> None:
    claim_and_move(two, lane, oxia.paused, for_s=STILL_S)


def test_unloaded_again_and_again(two: TwoBrokers, lane: Lane) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[_FAR_MS] * _FAR)
    near = []
    for _ in range(_UNLOADS):
        near += lane.send_in(*[3_000] * 100)
        lane.admin.unload(lane.topic)
        lane.finish_partly(inbox, near, left=len(far))


def test_broker_and_daemon_killed_together(two: TwoBrokers, lane: Lane) -> None:
    kill_owner(two, lane, far=_FAR, taken_within_s=TAKEN_S)
