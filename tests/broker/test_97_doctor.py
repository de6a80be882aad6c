"""``tidegate doctor`` beside a real broker: settings of Pulsar that delete what waits, consumers, units."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.daemons import run
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane, now_ms
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only
TTL_S = 300


def doctor(cluster: Cluster) -> dict[str, Any]:
    done = run(
        "doctor",
        "--socket",
        str(cluster.daemon.socket_path),
        "--admin-url",
        cluster.broker.admin_url,
        "--json",
    )
    assert not done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == report["fault"]
    return report


def of_topic(report: dict[str, Any], lane: Lane) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in report["findings"] if one["topic"] == f"persistent://{lane.topic}"}


def test_a_ttl_shorter_than_a_delay_is_a_fault_until_it_is_gone(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    namespace = "public/short-lived"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_message_ttl(namespace, TTL_S)
    lane, inbox = make_lane(namespace), Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS] * 5)
    lane.wait_delayed(5)
    report = doctor(cluster)
    found = of_topic(report, lane)
    assert report["fault"]
    assert (found["ttl"]["verdict"], found["ttl"]["says"][:38]) == (
        "fault",
        "5 messages are due only after the TTL ",
    )
    assert "unconsumed" not in found
    by_check = {one["check"]: one["verdict"] for one in report["findings"] if one["topic"] is None}
    assert {by_check[check] for check in ("clocks", "tracker", "ready", "brokers", "admin")} == {"ok"}
    assert report["versions"]["brokers"] == [f"pulsar {report['versions']['pulsar']}"]
    cluster.admin.set_message_ttl(namespace, 0)
    wait_until(lambda: "ttl" not in of_topic(doctor(cluster), lane), "without a TTL nothing is deleted")


def test_evicting_quotas_seconds_and_absent_consumers(
    make_lane: Callable[..., Lane], cluster: Cluster
) -> None:
    namespace = "public/short-kept"
    cluster.admin.create_namespace(namespace)
    quota = {"limitSize": -1, "limitTime": TTL_S, "policy": "consumer_backlog_eviction"}
    cluster.admin.call("POST", f"/namespaces/{namespace}/backlogQuota?backlogQuotaType=message_age", quota)
    lane, inbox = make_lane(namespace), Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS] * 5)
    lane.wait_delayed(5)
    with cluster.client() as client:
        producer = client.create_producer(lane.topic)
        producer.send(b"seconds", deliver_at=now_ms() // 1_000)
    lane.disconnect()
    wait_until(lambda: lane.stats().consumers == 0, "the consumer has gone")
    found = of_topic(doctor(cluster), lane)
    assert (found["quota"]["verdict"], "consumer_backlog_eviction" in found["quota"]["says"]) == (
        "fault",
        True,
    )
    assert (found["delays"]["verdict"], "1970" in found["delays"]["says"]) == ("warning", True)
    assert found["unconsumed"]["verdict"] == "note"
