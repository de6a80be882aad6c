"""Acknowledgements beyond the room of Pulsar's record of a cursor, on a broker of their own with little room.

4.0 and 4.2 store the ledger that crosses the limit, 5.0 leaves it out whole: a daemon must know the rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, TrackerKind, check_parts
from tests.support.inbox import Inbox, ack_even
from tests.support.lane import MINUTES_10_MS, Lane

LEDGER_ENTRIES, RANGES_MAX = 150, 100
CONF = {
    "managedLedgerMaxEntriesPerLedger": str(LEDGER_ENTRIES),
    "managedLedgerMaxUnackedRangesToPersist": str(RANGES_MAX),
    # So few that Pulsar writes the record in its own format, which counts otherwise.
    "managedLedgerMaxUnackedRangesToPersistInMetadataStore": "10",
}


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A topic of a broker whose cursors have little room."""
    kind = TrackerKind.chosen()
    check_parts(kind)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(kind, tmp_path_factory.mktemp("limit"), Path(short) / "daemon.sock", conf=CONF)
        try:
            started.start()
            lane = Lane(started, "limit")
            yield lane
            lane.close()
        finally:
            started.end()


def test_no_acknowledgement_comes_again_after_an_unload(lane: Lane) -> None:
    inbox, later = Inbox(), Inbox()
    consumer = lane.subscribe(inbox, ack_even)
    # The delayed one makes the tracker; the plain ones fill two ledgers and a part of a third.
    lane.send_in(MINUTES_10_MS)
    sent = lane.send_in(*[None] * (2 * LEDGER_ENTRIES + RANGES_MAX))
    inbox.wait_for(sent)
    acknowledged = inbox.acknowledged_ns
    assert len(acknowledged) > RANGES_MAX
    left = [one for one in sent if one.uid not in acknowledged]
    lane.wait_stats(lambda now: now.backlog == len(left) + 1, "the broker knows all acknowledgements")
    consumer.close()
    lane.admin.unload(lane.topic)
    lane.subscribe(later)
    lane.finish_partly(later, left, left=1)
