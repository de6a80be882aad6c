"""/metrics, /healthz, /readyz and /status of a daemon that works."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import runpy
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.daemons import StartDaemon
from tests.support.promlint import problems
from tests.support.shim_client import TIMEOUT_S, ShimClient, entries
from tidegate.index.entries.entry import ENTRY_BYTES
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import MemoryStore
from tidegate.plugin.daemon.serve import RunningDaemon
from tidegate.plugin.errors import ConfigError
from tidegate.plugin.telemetry.metrics import LATENESS_BUCKETS_S
from tidegate.plugin.wire.payload_reader import RECORD_BYTES

ROOT = Path(__file__).parents[3]
TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def get(port: int | None, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_of_a_working_daemon(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "billing", credit=4)
        stream.add(entries(4, now_ms() - 30_000))
        stream.add(entries(10, now_ms() + HOUR_MS, ledger_id=2))
        await stream.take_due(4)
        stream.ack(PositionSet.of([(1, 0)]))
        await stream.durable()
        response = await get(daemon.http_port, "/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        seen = samples(response.text)
        by_topic = (("namespace", "public/default"), ("subscription", "billing"), ("topic", TOPIC))
        for name, labels, value in (
            ("entries_held", (), 13),
            ("entries_in_flight", (), 3),
            ("entries_acknowledged", (), 1),
            ("entries_added_total", (), 14),
            ("entries_due_total", (), 4),
            ("credit_exhausted_total", (), 1),
            ("streams_without_credit", (), 1),
            ("brokers", (), 1),
            ("streams", (), 1),
            ("subscriptions", (), 1),
            ("ready", (), 1),
            ("frames_received_total", (("type", "ADD"),), 2),
            ("frames_sent_total", (("type", "WELCOME"),), 1),
            ("lateness_seconds_count", (), 4),
            ("lateness_seconds_bucket", (("le", "60.0"),), 4),
            ("lateness_seconds_bucket", (("le", "10.0"),), 0),
            ("subscription_entries_held", by_topic, 13),
            ("subscription_slice_width_seconds", by_topic, 3_600),
        ):
            assert seen.get((f"tidegate_{name}", labels)) == value, name
        assert seen[("tidegate_durable_lag_seconds_count", ())] >= 1
        assert seen[("tidegate_commits_total", (("result", "ok"),))] >= 1
        assert (
            len([key for key in seen if key[0] == "tidegate_lateness_seconds_bucket"])
            == len(LATENESS_BUCKETS_S) + 1
        )


async def test_the_names_are_as_prometheus_wants_them(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC, "billing")
        stream.add(entries(4, now_ms() - 30_000))
        await stream.take_due(4)
        await client.open(TOPIC, "minutes_ms_total")
        text = (await get(daemon.http_port, "/metrics")).text
    assert problems(text) == []
    seen = samples(text)
    build = [dict(labels) for name, labels in seen if name == "tidegate_build_info"]
    assert build == [{"version": version("tidegate"), "python": platform.python_version()}]
    for name in ("process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds"):
        assert seen[(name, ())] > 0
    assert not [name for name, _ in seen if name.endswith("_created")]


async def test_every_metric_is_described_for_operators(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        text = (await get(daemon.http_port, "/metrics")).text
    families = [one for one in text_string_to_metric_families(text) if one.name.startswith("tidegate_")]
    exposed = {one.name + ("_total" if one.type == "counter" else "") for one in families}
    assert len(exposed) > 30
    said = re.compile(r"[A-Z1][^ ]* .*[^.]")
    assert [one.name for one in families if not said.fullmatch(one.documentation)] == []
    reference = runpy.run_path(str(ROOT / "docs/site/reference.py"))["pages"]()["metrics"]
    assert set(re.findall(r"^\| `(\w+)` \|", reference, re.MULTILINE)) == exposed
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    section = page.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \| ", section, re.MULTILINE)
    told = {f"tidegate_{name}" for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(told) > 10
    assert told <= exposed


async def test_the_labels_are_those_of_pulsar_and_few(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        stream = await client.open(TOPIC)
        stream.add(entries(4, now_ms() + HOUR_MS))
        await stream.durable()
        text = (await get(daemon.http_port, "/metrics")).text
    of_samples = {
        family.name.removeprefix("tidegate_"): {*one.labels} - {"le"}
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if family.name.startswith("tidegate_")
    }
    of_subscription = {name for name in of_samples if name.startswith("subscription_")}
    assert len(of_subscription) > 5
    assert {name: labels for name, labels in of_samples.items() if labels} == {
        **{name: {"namespace", "topic", "subscription"} for name in of_subscription},
        "build_info": {"version", "python"},
        "commits": {"result"},
        "frames_received": {"type"},
        "frames_sent": {"type"},
        "persists": {"result"},
        "slices": {"where"},
    }


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("a_ms", "gauge", "an abbreviated unit"),
        ("a_minutes", "gauge", "use base units instead of minutes"),
        ("a_milliseconds", "gauge", "use base units instead of milliseconds"),
        ("a_total", "gauge", "not a counter, and ends in _total"),
        ("a_count", "gauge", "not a histogram, and ends in _count"),
        ("a_gauge", "gauge", "the type gauge in the name"),
        ("aB", "gauge", "camelCase"),
    ],
)
def test_the_names_that_the_linter_refuses(name: str, kind: str, said: str) -> None:
    text = f"# HELP {name} x\n# TYPE {name} {kind}\n{name} 1\n"
    assert problems(text) == [f"{name}: {said}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# TYPE a gauge\na 1\n", "a: no help text"),
        ('# HELP a x\n# TYPE a gauge\na{le="1"} 1\n', "a: a label that is reserved"),
        ('# HELP a x\n# TYPE a gauge\na{b="1"} 1\na{b="1"} 2\n', "a: a series twice"),
    ],
)
def test_what_else_the_linter_finds(text: str, said: str) -> None:
    assert problems(text) == [said]


async def test_metrics_of_what_the_index_takes(start: StartDaemon, socket_path: Path) -> None:
    store, staged = MemoryStore(), 50_000
    async with (
        start(store=store, prefetch_ms=0, heartbeat_ms=600_000) as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC, credit=2)
        at = (now_ms() // HOUR_MS + 2) * HOUR_MS
        stream.add(entries(3, at, step_ms=HOUR_MS))
        await stream.durable()
        daemon.engine.catalog.persist(SubscriptionName(TOPIC, "sub"))
        seen = samples((await daemon.exposition()).decode())
        assert seen[("tidegate_slices", (("where", "disk"),))] == 3
        assert seen[("tidegate_slices", (("where", "memory"),))] == 0
        assert seen[("tidegate_blocks", ())] == 3
        assert seen[("tidegate_persists_total", (("result", "ok"),))] == 1
        assert seen[("tidegate_persists_total", (("result", "failed"),))] == 0
        assert seen[("tidegate_compactions_total", ())] == seen[("tidegate_slices_crowded", ())] == 0
        assert seen[("tidegate_read_pause_seconds_total", ())] == 0
        assert seen[("tidegate_journal_bytes", ())] == 0
        before_bytes = seen[("tidegate_memory_bytes", ())]

        (index,) = daemon.engine.catalog
        index.timeline.load_next(at)
        stream.add(entries(staged, at, ledger_id=2))
        await stream.durable()
        async with asyncio.timeout(TIMEOUT_S):
            while client.received_bytes != await sent_bytes(daemon):
                await asyncio.sleep(0.01)
        seen = samples((await daemon.exposition()).decode())
        assert seen[("tidegate_slices", (("where", "memory"),))] == 1
        assert seen[("tidegate_slices", (("where", "disk"),))] == 3, "also those that are loaded"
        assert seen[("tidegate_entries_staged", ())] == staged
        grown_bytes = seen[("tidegate_memory_bytes", ())] - before_bytes
        assert staged * ENTRY_BYTES <= grown_bytes < 2 * staged * ENTRY_BYTES
        assert seen[("tidegate_disk_bytes", ())] == store.disk_bytes() > staged
        assert seen[("tidegate_journal_bytes", ())] > staged
        assert seen[("tidegate_bytes_received_total", ())] == client.sent_bytes > staged * RECORD_BYTES
        assert seen[("tidegate_bytes_sent_total", ())] == client.received_bytes


async def test_whoever_asks_the_disk_is_looked_at_beside_the_loop(
    start: StartDaemon, socket_path: Path
) -> None:
    asked: list[int] = []

    class Watched(MemoryStore):
        def disk_bytes(self) -> int:
            asked.append(threading.get_ident())
            return super().disk_bytes()

    async with (
        start(store=Watched(), http="127.0.0.1:0") as daemon,
        await ShimClient.connect(socket_path) as client,
    ):
        stream = await client.open(TOPIC)
        stream.add(entries(4, now_ms() + HOUR_MS))
        await stream.durable()
        for page in ("metrics", "status", "healthz", "readyz"):
            await get(daemon.http_port, f"/{page}")
    assert asked
    assert threading.get_ident() not in asked


async def sent_bytes(daemon: RunningDaemon) -> float:
    return samples((await daemon.exposition()).decode())[("tidegate_bytes_sent_total", ())]


async def test_series_of_subscriptions_are_bounded(start: StartDaemon, socket_path: Path) -> None:
    async with start(metrics_subscriptions=3) as daemon, await ShimClient.connect(socket_path) as client:
        for number in range(10):
            await client.open(f"{TOPIC}-{number}")
        text = (await daemon.exposition()).decode()
        assert text.count("tidegate_subscription_entries_held{") == 3
        assert text.count("tidegate_subscription_slice_width_seconds{") == 3
        assert "tidegate_subscriptions 10.0" in text


async def test_health_and_readiness(start: StartDaemon) -> None:
    async with start(http="127.0.0.1:0") as daemon:
        assert (await get(daemon.http_port, "/healthz")).status_code == 200
        assert (await get(daemon.http_port, "/readyz")).text == "ready\n"
        daemon.health.block("storage", "the store fails: no space left")
        response = await get(daemon.http_port, "/readyz")
        assert response.status_code == 503
        assert response.text == "the store fails: no space left\n"
        assert (await get(daemon.http_port, "/healthz")).status_code == 200


async def test_status_over_http(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        await client.open(TOPIC)
        answer = (await get(daemon.http_port, "/status")).json()
        assert answer["brokers"][0]["name"] == "broker-1"
        assert answer["subscriptions"][0]["topic"] == TOPIC


@asynccontextmanager
async def asked(daemon: RunningDaemon, address: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, base_url=f"http://{address}:{daemon.http_port}") as client:
        yield client


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 with a token
@pytest.mark.parametrize("path", ["/metrics", "/status", "/nowhere"])
async def test_a_token_that_is_set_is_needed_for_whatever_tells_something(
    start: StartDaemon, token_file: Path, address: str, path: str
) -> None:
    async with start(http=f"{address}:0", http_token_file=token_file) as daemon, asked(daemon) as client:
        for wrong in ({}, *({"Authorization": word} for word in ("Bearer another word", "Bearer", "a long"))):
            refused = await client.get(path, headers=wrong)
            assert (refused.status_code, refused.text) == (401, "a token is needed\n")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
        for scheme in ("Bearer", "bearer"):
            answer = await client.get(path, headers={"Authorization": f"{scheme} a long random word"})
            assert answer.status_code == (404 if path == "/nowhere" else 200)


async def test_without_the_token_probes_learn_whether_and_not_why(
    start: StartDaemon, token_file: Path
) -> None:
    async with start(http="127.0.0.1:0", http_token_file=token_file) as daemon, asked(daemon) as client:
        assert (await client.get("/healthz")).text == "ok\n"
        assert (await client.get("/readyz")).text == "ready\n"
        daemon.health.block("storage", "the store fails: /var/lib/tidegate is full")
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready\n")
        answer = await client.get("/readyz", headers={"Authorization": "Bearer a long random word"})
        assert (answer.status_code, answer.text) == (503, "the store fails: /var/lib/tidegate is full\n")


async def test_what_could_change_something_needs_the_token(start: StartDaemon, token_file: Path) -> None:
    async with start(http="127.0.0.1:0", http_token_file=token_file) as daemon, asked(daemon) as client:
        assert (await client.post("/healthz")).status_code == 401
        wrong = {"Authorization": "Bearer another word"}
        assert (await client.post("/healthz", headers=wrong)).status_code == 401
        right = {"Authorization": "Bearer a long random word"}
        assert (await client.post("/healthz", headers=right)).status_code == 405


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("LOCALHOST:8088", True),
        ("127.0.0.1", True),
        ("127.0.0.1:8088", True),
        ("[::1]:8088", True),
        ("[::1]", True),
        ("10.0.0.7:8088", True),
        ("metrics.internal:8088", True),
        ("Metrics.Internal", True),
        ("other.internal", False),
        ("evil.example:8088", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("[::1].evil.example", False),
        ("user@localhost", False),
        ("localhost:8088:9", False),
    ],
)
async def test_a_page_whose_name_leads_here_learns_nothing(
    start: StartDaemon, host: str, known: bool
) -> None:
    hosts = "metrics.internal, b.internal"
    async with start(http="127.0.0.1:0", http_hosts=hosts) as daemon, asked(daemon) as client:
        for path in ("/metrics", "/healthz", "/readyz", "/status"):
            answer = await client.get(path, headers={"Host": host})
            assert answer.status_code == (200 if known else 421)
            assert known or answer.text == "ask by IP address, or put this host into http_hosts\n"


async def test_a_request_of_before_hosts(start: StartDaemon) -> None:
    async with start(http="127.0.0.1:0") as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.http_port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\nok\n")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.http_port)
        writer.write(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert b"ok" not in await reader.read()
        writer.close()


@pytest.mark.parametrize("header", ["Authorization: Bearer {}\r", "Authorization : Bearer {}", "{}\x00: 1"])
async def test_a_malformed_request_leaves_no_token_in_the_log(
    start: StartDaemon, token_file: Path, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = token_file.read_text().strip()
    async with start(http="127.0.0.1:0", http_token_file=token_file) as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.http_port)
        request = f"GET /status HTTP/1.1\r\nHost: localhost\r\n{header.format(token)}\r\n\r\n"
        writer.write(request.encode())
        assert b" 400 " in await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        writer.close()
    assert "no request of HTTP" in caplog.text
    assert token not in caplog.text


@pytest.mark.parametrize(
    "request_head",
    ["FOO /tidegate/v1/tide HTTP/1.1", "GET /tidegate/v1/tide HTTP/1.1\r\nX: " + 9_000 * "a", "hello"],
)
async def test_bytes_that_are_no_request_are_answered_with_a_problem(
    start: StartDaemon, request_head: str
) -> None:
    async with start(http="127.0.0.1:0") as daemon:
        reader, writer = await asyncio.open_connection("127.0.0.1", daemon.http_port)
        writer.write(f"{request_head}\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = (await asyncio.wait_for(reader.read(), TIMEOUT_S)).partition(b"\r\n\r\n")
        writer.close()
    assert b" 400 " in head.splitlines()[0]
    assert b"Content-Type: application/problem+json" in head
    assert json.loads(body)["status"] == 400
    assert request_head[-9:] not in body.decode()


async def test_without_a_token_nothing_can_be_changed(start: StartDaemon) -> None:
    async with (
        start(http="127.0.0.1:0") as daemon,
        httpx.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{daemon.http_port}") as client,
    ):
        assert (await client.post("/healthz", headers={"Authorization": "Bearer None"})).status_code == 401


async def test_a_bad_token_file_stops_the_start_and_leaves_no_socket(
    start: StartDaemon, short_dir: Path, socket_path: Path
) -> None:
    with pytest.raises(ConfigError, match="http_token_file"):
        async with start(http="127.0.0.1:0", http_token_file=short_dir / "none"):
            pass
    assert not socket_path.exists()
