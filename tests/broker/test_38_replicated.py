"""A subscription with a replicated state, in two clusters with geo-replication.

Snapshots travel as markers in the topic. An acknowledgement in one cluster moves the other's cursor forward,
with or without a tracker there; acknowledgements beyond it stay. Against Pulsar's own trackers:
``TIDEGATE_TEST_TRACKER=pulsar``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.support.cluster import Cluster, TrackerKind, check_parts
from tests.support.inbox import UID, Inbox, Sent, Verdict, assert_exactly, keep_all
from tests.support.lane import Lane, now_ms
from tests.support.waiting import wait_until

NAMESPACE = "public/both"
EACH = 20
FIRST_MS, SECOND_MS, THIRD_MS = 15_000, 45_000, 120_000
SNAPSHOT_S = 4.0
STORED_AFTER_S = 2.0
REPLICATED: dict[str, Any] = {"replicate_subscription_state_enabled": True}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Cluster]]:
    """East and west, each with its own metadata, daemon and broker."""
    kind = TrackerKind.chosen()
    check_parts(kind)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        both = [
            Cluster(
                kind, tmp_path_factory.mktemp(name), Path(short) / f"{name}.sock", conf={"clusterName": name}
            )
            for name in ("east", "west")
        ]
        try:
            for one in both:
                one.start()
            join(dict(zip(("east", "west"), both, strict=True)))
            yield both
        finally:
            for one in both:
                one.end()


def join(clusters: dict[str, Cluster]) -> None:
    """Each knows the other, and the namespace is in both."""
    for name, one in clusters.items():
        for other_name, other in clusters.items():
            body = {"serviceUrl": other.broker.admin_url, "brokerServiceUrl": other.service_url}
            one.admin.call("POST" if other_name == name else "PUT", f"/clusters/{other_name}", body)
        tenant = {"adminRoles": [], "allowedClusters": sorted(clusters)}
        one.admin.call("POST", "/tenants/public", tenant)
        one.admin.create_namespace(NAMESPACE)
    for one in clusters.values():
        one.admin.call("POST", f"/namespaces/{NAMESPACE}/replication", sorted(clusters))


def ids_of(lane: Lane, sent: list[Sent]) -> dict[str, pulsar.MessageId]:
    """The ids of messages in this lane's cluster, once all are there."""
    reader = lane.client.create_reader(lane.topic, pulsar.MessageId.earliest)
    wanted = {one.uid for one in sent}
    found: dict[str, pulsar.MessageId] = {}
    while wanted - found.keys():
        message = reader.read_next(60_000)
        found[message.properties()[UID]] = message.message_id()
    reader.close()
    return found


def mark_delete(lane: Lane) -> tuple[int, int]:
    """The position up to which all is acknowledged."""
    at = lane.admin.internal_stats(lane.topic)["cursors"]["sub"]["markDeletePosition"]
    ledger_id, entry_id = map(int, at.split(":"))
    return ledger_id, entry_id


def wait_moved(lane: Lane, to: pulsar.MessageId) -> None:
    """Wait until the cursor is there, by news of the other cluster or by itself."""
    wanted = (to.ledger_id(), to.entry_id())
    wait_until(lambda: mark_delete(lane) >= wanted, f"the cursor is moved to {wanted}", timeout_s=60.0)


def test_acknowledged_in_both(clusters: list[Cluster]) -> None:
    east, west = (Lane(one, "orders", namespace=NAMESPACE) for one in clusters)
    west.topic = east.topic
    here = Inbox()
    last_ms = now_ms() + THIRD_MS
    east.subscribe(
        here, lambda one: Verdict.KEEP if one.deliver_at_ms == last_ms else Verdict.ACK, **REPLICATED
    )
    west.subscribe(Inbox(), **REPLICATED)
    west.disconnect()
    # Each third has a snapshot behind it: one is made a second after something was published.
    parts = []
    for at_ms in (last_ms - THIRD_MS + FIRST_MS, last_ms - THIRD_MS + SECOND_MS, last_ms):
        parts.append(east.send([at_ms] * EACH))
        time.sleep(SNAPSHOT_S)
    first, second, third = parts
    ids = ids_of(west, [*first, *second, *third])
    here.wait_for(first)
    wait_moved(west, ids[first[-1].uid])

    # The west acknowledges every other of the last, which wait, and then all of its consumers go.
    gone, left = third[::2], third[1::2]
    keeper = Inbox()
    canceller = west.subscribe(keeper, keep_all, **REPLICATED)
    for one in gone:
        canceller.acknowledge(ids[one.uid])
    time.sleep(STORED_AFTER_S)
    west.disconnect()
    here.wait_for(second)
    wait_moved(west, ids[second[-1].uid])
    west.admin.unload(west.topic)
    east.disconnect()

    back = Inbox()
    west.subscribe(back, **REPLICATED)
    back.wait_for(left, timeout_s=180.0)
    wait_moved(west, ids[third[-1].uid])
    time.sleep(STORED_AFTER_S)
    assert_exactly(back.arrivals, left)
    west.not_early([*back.arrivals, *keeper.arrivals])
    assert not {one.uid for one in first} & set(keeper.uids)
    assert_exactly([one for one in here.arrivals if one.deliver_at_ms != last_ms], [*first, *second])
    east.not_early(here.arrivals)
    east.disconnect()
    west.disconnect()
