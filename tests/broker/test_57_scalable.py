"""Scalable topics of Pulsar 5: each segment is a topic of its own, with a tracker of ours."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pulsar
import pytest

from tests.broker.conftest import HERE
from tests.support.cluster import PULSAR_HOME, PULSAR_MAJOR, SUBSCRIBED, Cluster
from tests.support.daemons import run
from tests.support.inbox import DELIVER_AT_MS, UID
from tests.support.java_client import java_command
from tests.support.lane import now_ms
from tests.support.waiting import wait_until
from tidegate.plugin.wire.client import ask_socket

pytestmark = [
    pytest.mark.tidegate_only,
    pytest.mark.skipif(PULSAR_MAJOR < 5, reason=f"{PULSAR_HOME.name} has no scalable topics"),
]
CLIENT = HERE / "java" / "ScalableTopic.java"
MESSAGES, OLD = 3_000, 500
CONNECTION_LOST = " - Disconnected {"
"""In the client's log, beside each connection that ends."""


def split_and_merge(cluster: Cluster, name: str, old: int) -> dict[str, Any]:
    """Delayed messages while segments are split and merged; what became of them."""
    done = subprocess.run(
        [
            *java_command(CLIENT), cluster.service_url, cluster.broker.admin_url,
            f"{SUBSCRIBED}/{name}", str(MESSAGES), str(old),
        ],
        cwd=cluster.work_dir, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the Java client failed: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    # Among lines of its log.
    log, told = re.split(r"^(?=\{\"expected\")", done.stdout, maxsplit=1, flags=re.MULTILINE)
    found: dict[str, Any] = json.loads(told.partition("\n")[0])
    assert [found["missing"], found["early"]] == [0, 0], done.stdout[-3000:]
    assert found["received"] == found["expected"], found
    # The client drops its connection when it closes a sealed segment's producer that is about to connect. It
    # then sends unanswered messages again, and its latest acknowledgements are lost: docs/pulsar-versions.md.
    if CONNECTION_LOST not in log:
        again = "".join(line for line in log.splitlines(keepends=True) if line.startswith("again"))
        assert [found["repeated"], found["twice"]] == [0, 0], again[:3000]
    return found


def held(cluster: Cluster, name: str) -> dict[str, int]:
    """How many positions the daemon holds of each segment of the topic."""
    status = ask_socket(cluster.daemon.socket_path, {"what": "status"})
    return {
        one["topic"]: one["held"]
        for one in status["subscriptions"]
        if f"/{name}" in one["topic"] and one["subscription"] == "sub"
    }


def test_segments_split_and_merge_under_delayed_messages(cluster: Cluster) -> None:
    found = split_and_merge(cluster, "scaled", 0)
    assert len(found["segments"]) == 5, "two, two of the split one, and the merged one"
    far = MESSAGES // 10
    wait_until(lambda: sum(held(cluster, "scaled").values()) == far, "the daemon holds those due in an hour")
    assert all(topic.startswith("segment://public/default/scaled/") for topic in held(cluster, "scaled"))
    socket = str(cluster.daemon.socket_path)
    tide = run("tide", "segment://public/default/scaled/*", "sub", "--json", "--socket", socket)
    assert json.loads(tide.stdout)["entries"] == far, "its segments are added up"


def test_a_plain_topic_becomes_a_scalable_one(cluster: Cluster) -> None:
    topic = f"persistent://{SUBSCRIBED}/migrated"
    with cluster.client() as client:
        client.subscribe(topic, "sub", consumer_type=pulsar.ConsumerType.Shared).close()
        producer = client.create_producer(topic)
        start_ms = now_ms()
        for number in range(OLD):
            due_ms = start_ms + 15_000 + number * 7919 % 20_000
            properties = {UID: f"old-{number}", DELIVER_AT_MS: str(due_ms)}
            producer.send_async(b"x", None, properties=properties, deliver_at=due_ms)
        producer.flush()
        producer.close()
    found = split_and_merge(cluster, "migrated", OLD)
    assert any(topic in segment for segment in found["segments"]), found
    wait_until(lambda: sum(held(cluster, "migrated").values()) == MESSAGES // 10, "the far ones are held")
