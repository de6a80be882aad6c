"""Messages due soon are read into the broker's cache in batches, where Pulsar would read each by itself."""

from __future__ import annotations

import pytest

from tests.support.cluster import PULSAR_VERSION
from tests.support.inbox import Inbox
from tests.support.lane import OURS, Lane

pytestmark = pytest.mark.tidegate_only

MESSAGES = 3_000


def test_a_burst_is_prefetched_and_comes_once(lane: Lane) -> None:
    """Also what lies in the ledger that is being written."""
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[6_000] * MESSAGES)
    lane.finish(inbox, sent)
    prefetched = int(lane.metrics(OURS)["prefetched_entries"])
    if PULSAR_VERSION.startswith("4.0."):
        assert MESSAGES // 2 < prefetched <= MESSAGES, "and none is read twice"
    else:
        assert prefetched == 0


def test_a_topic_that_is_unloaded_amid_a_burst(lane: Lane) -> None:
    """Its cache is gone; the next owner reads again, and nothing is left behind."""
    inbox = Inbox()
    lane.subscribe(inbox)
    sent = lane.send_in(*[6_000] * MESSAGES)
    inbox.wait_for(sent[:100])
    lane.admin.unload(lane.topic)
    inbox.wait_for(sent)
    lane.wait_drained()
    lane.not_early(inbox.arrivals)
