"""Metrics pushed to a collector: the figures of a scrape, under the names that Pulsar's have."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.collector import Collector
from tests.support.daemons import StartDaemon, assert_one_line, run
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until
from tidegate.plugin.daemon.settings import load_settings
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.telemetry import otel_names
from tidegate.plugin.telemetry.otel_names import DELAYED, LEFT_OUT, NAMES, Kind, topic_attributes

TOPIC = "persistent://public/default/orders-partition-3"
HOUR_MS = 3_600_000
FAR_MS = 4_000_000_000_000
QUICK = {"otlp": True, "otlp_interval_ms": 100}


async def test_a_collector_gets_what_a_scrape_has(start: StartDaemon, socket_path: Path) -> None:
    with Collector() as collector:
        async with (
            start(**QUICK, otlp_endpoint=collector.endpoint) as daemon,
            await ShimClient.connect(socket_path) as client,
        ):
            stream = await client.open(TOPIC, "billing", credit=4)
            stream.add(entries(4, 1_700_000_000_000))
            stream.add(entries(10, FAR_MS, ledger_id=2))
            await stream.take_due(4)
            await stream.durable()
            await until(lambda: bool(collector.received))
            seen = len(collector.received)
            await until(lambda: len(collector.received) > seen + 1)
            pushed = collector.received[-1]
            scraped = (await daemon.exposition()).decode()
    assert pushed.scopes == {"tidegate"}
    assert pushed.resource["service.name"] == "tidegate"
    assert pushed.resource["service.instance.id"] == f"{daemon.engine.daemon_id:016x}"
    topic = {
        "pulsar.domain": "persistent",
        "pulsar.tenant": "public",
        "pulsar.namespace": "public/default",
        "pulsar.topic": "persistent://public/default/orders",
        "pulsar.partition.index": 3,
        "pulsar.subscription.name": "billing",
    }
    assert pushed.points(DELAYED) == [(topic, 10)]
    assert pushed.points("tidegate.subscription.held.entry.count") == [(topic, 14)]
    assert pushed.value("tidegate.entry.held.count") == 14
    assert pushed.value("tidegate.entry.outgoing.count") == 4
    assert ({"tidegate.type": "ADD"}, 2) in pushed.points("tidegate.frame.incoming.count")
    lateness = pushed.metrics["tidegate.entry.lateness"]
    (point,) = lateness.histogram.data_points
    assert (lateness.unit, point.count, sum(point.bucket_counts), point.bucket_counts[-1]) == ("s", 4, 4, 4)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert not point.HasField("max")
    assert pushed.metrics["tidegate.entry.outgoing.count"].sum.is_monotonic
    assert not pushed.metrics[DELAYED].sum.is_monotonic
    assert pushed.metrics[DELAYED].unit == "{entry}"
    families = {family.name for family in text_string_to_metric_families(scraped)}
    assert {name.name for family, name in NAMES.items() if family in families} | {DELAYED} == set(
        pushed.metrics
    )


async def test_every_metric_has_a_name(start: StartDaemon, socket_path: Path) -> None:
    async with start() as daemon, await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        text = (await daemon.exposition()).decode()
    kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert set(kinds) - LEFT_OUT == set(NAMES)
    names = [one.name for one in NAMES.values()]
    assert len(names) == len(set(names))
    for family, one in NAMES.items():
        assert (kinds[family] == "counter") == (one.kind is Kind.COUNTER), family
        assert (kinds[family] == "histogram") == (one.kind is Kind.HISTOGRAM), family
        assert one.unit == {"bytes": "By", "seconds": "s"}.get(family.rpartition("_")[2], one.unit), family


@pytest.mark.parametrize(
    ("topic", "namespace", "name", "partition"),
    [
        ("persistent://t/n/a", "t/n", "persistent://t/n/a", None),
        ("persistent://t/n/a-partition-12", "t/n", "persistent://t/n/a", 12),
        ("persistent://t/n/a-partition-01", "t/n", "persistent://t/n/a-partition-01", None),
        (
            "persistent://t/n/a-partition-" + "9" * 5_000,
            "t/n",
            "persistent://t/n/a-partition-" + "9" * 5_000,
            None,
        ),
        ("persistent://t/n/a-partition-x", "t/n", "persistent://t/n/a-partition-x", None),
        ("segment://t/n/a/b", "t/n", "segment://t/n/a/b", None),
        ("what", "/", "what", None),
    ],
)
def test_the_attributes_of_a_topic(topic: str, namespace: str, name: str, partition: int | None) -> None:
    found = topic_attributes(topic)
    assert (found["pulsar.namespace"], found["pulsar.topic"]) == (namespace, name)
    assert found.get("pulsar.partition.index") == partition


async def test_a_collector_that_refuses_is_told_once_and_harms_nothing(
    start: StartDaemon, socket_path: Path, log: io.StringIO
) -> None:
    with Collector() as collector:
        collector.refuse = True
        async with (
            start(**QUICK, otlp_endpoint=collector.endpoint) as daemon,
            await ShimClient.connect(socket_path) as client,
        ):
            stream = await client.open(TOPIC)
            stream.add(entries(3, FAR_MS))
            await stream.durable()
            await until(lambda: len(collector.headers) > 3)
            assert daemon.health.ready
            assert b'tidegate_otlp_exports_total{result="failed"}' in await daemon.exposition()
            collector.refuse = False
            await until(lambda: len(collector.received) > 1)
    events = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
    assert events.count("the OpenTelemetry collector accepts no metrics, trying again") == 1
    assert events.count("the OpenTelemetry collector accepts metrics again") == 1
    assert "Traceback" not in log.getvalue()


async def test_a_collector_that_hangs_does_not_keep_the_daemon_from_ending(
    start: StartDaemon, socket_path: Path
) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await released.wait()
        writer.close()

    reached, released = asyncio.Event(), asyncio.Event()
    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(60), start(**QUICK, otlp_endpoint=f"http://127.0.0.1:{port}/v1/metrics"):
            await reached.wait()
            client = await ShimClient.connect(socket_path)
            await client.open(TOPIC)
            await client.disconnect()
        assert not released.is_set()
        released.set()


async def test_nothing_is_pushed_unless_asked(start: StartDaemon, socket_path: Path) -> None:
    with Collector() as collector:
        async with (
            start(otlp_interval_ms=100, otlp_endpoint=collector.endpoint),
            await ShimClient.connect(socket_path) as client,
        ):
            await client.open(TOPIC)
            await asyncio.sleep(0.3)
    assert not collector.headers


def test_without_the_extra_one_line_names_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None; "
        "sys.argv = ['tidegate', 'serve', '--data', sys.argv[1]];"
        "from tidegate.plugin.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        env={"TIDEGATE_OTLP": "true", "TIDEGATE_SOCKET": str(tmp_path / "t.sock"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert_one_line(done, "otlp needs OpenTelemetry's exporter, which is not installed: run pip install", 2)
    assert "[otel]" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "endpoint",
    [
        "here",
        "ftp://127.0.0.1/",
        "http://",
        "http://user:secret@127.0.0.1:4318/",
        "http://a:99999/",
        "http://a b/",
    ],
)
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"otlp_endpoint: must be an address as in http://127.0.0.1:4318"):
        load_settings({"data": Path("d"), "otlp_endpoint": endpoint})


def test_off_and_on_loopback_by_default() -> None:
    settings = load_settings({"data": Path("d")})
    assert (settings.otlp, settings.otlp_endpoint) == (False, "http://127.0.0.1:4318/v1/metrics")


def test_the_page_names_them_rightly() -> None:
    page = (Path(__file__).parents[3] / "docs/metrics.md").read_text("utf-8")
    assert f"`{otel_names.DELAYED}`" in page
    for said in ("tidegate.entry.held.count", "tidegate.entry.outgoing.count", "tidegate.index.disk.usage"):
        assert f"`{said}`" in page
        assert said in {one.name for one in NAMES.values()}
    assert run("metrics", "--help").returncode == 0
