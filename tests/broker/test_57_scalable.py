"""Scalable topics of Pulsar 5: each segment is a topic of its own, with a tracker of ours."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.broker.conftest import HERE
from tests.support.cluster import PULSAR_HOME, PULSAR_MAJOR, SUBSCRIBED, Cluster
from tests.support.daemons import run
from tests.support.inbox import DELIVER_AT_MS, UID
from tests.support.java_client import java_command
from tests.support.lane import now_ms
from tests.support.waiting import wait_until
from tidegate import Client
from tidegate.plugin.wire.client import ask_socket

pytestmark = [
    pytest.mark.tidegate_only,
    pytest.mark.skipif(PULSAR_MAJOR < 5, reason=f"{PULSAR_HOME.name} has no scalable topics"),
]
CLIENT, READERS = (HERE / "java" / f"{name}.java" for name in ("ScalableTopic", "ScalableReaders"))
MESSAGES, OLD, READ = 3_000, 500, 400
CONNECTION_LOST = " - Disconnected {"
"""In the client's log, beside each connection that ends."""


def run_client(cluster: Cluster, source: Path, name: str, *numbers: int) -> tuple[str, dict[str, Any]]:
    """The log of a Java client of the topic, and the object that it prints among its lines."""
    done = subprocess.run(
        [
            *java_command(source), cluster.service_url, cluster.broker.admin_url,
            f"{SUBSCRIBED}/{name}", *map(str, numbers),
        ],
        cwd=cluster.work_dir, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the Java client failed: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    log, told = re.split(r"^(?=\{\")", done.stdout, maxsplit=1, flags=re.MULTILINE)
    return log, json.loads(told.partition("\n")[0])


def split_and_merge(cluster: Cluster, name: str, old: int) -> dict[str, Any]:
    """Delayed messages while segments are split and merged; what became of them."""
    log, found = run_client(cluster, CLIENT, name, MESSAGES, old)
    assert [found["missing"], found["early"]] == [0, 0], f"{log[-3000:]}{found}"
    assert found["received"] == found["expected"], found
    # The client drops its connection when it closes a sealed segment's connecting producer. It then repeats
    # unanswered messages, and loses its latest acknowledgements: docs/pulsar-versions.md.
    if CONNECTION_LOST not in log:
        again = "".join(line for line in log.splitlines(keepends=True) if line.startswith("again"))
        assert [found["repeated"], found["twice"]] == [0, 0], again[:3000]
    return found


def held(cluster: Cluster, name: str, subscription: str = "sub") -> dict[str, int]:
    """How many positions the daemon holds of each segment of the topic."""
    return {one["topic"]: one["held"] for one in listed(cluster, name) if subscription == one["subscription"]}


def listed(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The daemon's status of the topic's segments, by subscription."""
    status = ask_socket(cluster.daemon.socket_path, {"what": "status"})
    return [one for one in status["subscriptions"] if f"/{name}" in one["topic"]]


def scraped(cluster: Cluster, name: str) -> float:
    """The held positions of ``sub`` in the daemon's metrics, its segments added up."""
    text = httpx.get(f"{cluster.daemon.url}/metrics", timeout=5.0, trust_env=False).text
    labels = rf'.*subscription="sub",topic="segment://{SUBSCRIBED}/{name}/[^"]*".*'
    series = rf"^tidegate_subscription_entries_held\{{{labels}\}} (\S+)$"
    return sum(map(float, re.findall(series, text, re.MULTILINE)))


def test_segments_split_and_merge_under_delayed_messages(cluster: Cluster) -> None:
    found = split_and_merge(cluster, "scaled", 0)
    assert len(found["segments"]) == 5, "two, two of the split one, and the merged one"
    far = MESSAGES // 10
    wait_until(lambda: sum(held(cluster, "scaled").values()) == far, "the daemon holds those due in an hour")
    assert all(topic.startswith("segment://public/default/scaled/") for topic in held(cluster, "scaled"))
    socket = str(cluster.daemon.socket_path)
    for topic in "segment://public/default/scaled/*", "topic://public/default/scaled":
        tide = run("tide", topic, "sub", "--json", "--socket", socket)
        assert json.loads(tide.stdout)["entries"] == far, "its segments are added up"
    assert scraped(cluster, "scaled") == far
    look_and_cancel(cluster, "scaled", far)


def look_and_cancel(cluster: Cluster, name: str, far: int) -> None:
    """`far` messages of several segments: over the broker by segment, over the socket by the topic's name."""
    whole, socket = f"topic://{SUBSCRIBED}/{name}", str(cluster.daemon.socket_path)
    by_segment = {topic: count for topic, count in held(cluster, name).items() if count}
    assert len(by_segment) > 1
    with Client(cluster.broker.admin_url) as client:
        for topic, count in by_segment.items():
            assert client.tide(topic, "sub").entries == count
            assert len(list(client.waiting(topic, "sub"))) == count
        topic = min(by_segment)
        first = next(iter(client.waiting(topic, "sub"))).message_id
        assert client.show(topic, "sub", first).state == "waiting"
        assert client.cancel(topic, "sub", ids=[first]).done == 1
        assert client.show(topic, "sub", first).state == "acknowledged"
    web = httpx.get(
        f"{cluster.broker.admin_url}/tidegate/v1/topic/{SUBSCRIBED}/{name}/sub/tide", trust_env=False
    )
    assert (web.status_code, "ask for each" in web.json()["detail"]) == (404, True)
    listed = run("list", whole, "sub", "--json", "--socket", socket, "--limit", str(far)).stdout.splitlines()
    left = [json.loads(line) for line in listed]
    assert [one["deliver_at_ms"] for one in left] == sorted(one["deliver_at_ms"] for one in left)
    assert len({one["message_id"] for one in left} - {first}) == far - 1
    ends = [left[0]["message_id"], left[-1]["message_id"], first]
    done = run("cancel", whole, "sub", *(f"--id={one}" for one in ends), "--json", "--socket", socket)
    counted = json.loads(done.stdout)
    assert (done.returncode, counted["done"], counted["acknowledged"]) == (1, 2, 1), done
    done = run("cancel", whole, "sub", "--all", "--json", "--socket", socket)
    assert (done.returncode, json.loads(done.stdout)["done"]) == (0, far - 3), done
    wait_until(lambda: sum(held(cluster, name).values()) == 0, "nothing waits any more")


def test_each_kind_of_consumer(cluster: Cluster) -> None:
    """Pulsar's dispatchers for one consumer ask no tracker, and those for several do, as beside its own."""
    log, found = run_client(cluster, READERS, "readers", READ)
    half = READ // 2
    assert found["queue"] == {"early": 0, "due": half}, log[-3000:]
    assert found["crowd"] == {"early": 0, "due": half}, "several for a segment: Key_Shared"
    for kind in "stream", "checkpoint":
        assert sum(found[kind].values()) == READ, (kind, found)
        assert found[kind]["early"] >= half, "those due in an hour came"
    both = {"sub": half, "crowd": half}
    wait_until(
        lambda: {name: sum(held(cluster, "readers", name).values()) for name in both} == both,
        "the far ones of both are held",
    )
    assert {one["subscription"] for one in listed(cluster, "readers")} == both.keys()
    assert scraped(cluster, "readers") == half
    status = ask_socket(cluster.daemon.socket_path, {"what": "status"})
    sums = [one for one in status["scalable"]["topics"] if one["topic"].endswith("/readers")]
    assert {one["subscription"]: one["held"] for one in sums} == both


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
