"""``tidegate status --admin-url`` beside a daemon and a broker's web service: the quotas of policies."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import StartDaemon, run
from tests.support.shim_client import ShimClient, entries
from tidegate.plugin.commands.status_quotas import TOPICS_MAX
from tidegate.plugin.local.process import free_ports

HOUR_MS = 3_600_000
TOPIC = "persistent://public/default/{}"


class Broker:
    """Tells the properties of topics, by path."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.asked: list[str] = []
        self.token: str | None = None
        broker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                broker.asked.append(self.path)
                allowed = broker.token in {None, self.headers.get("Authorization")}
                body = json.dumps(broker.properties.get(self.path)).encode()
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def sets(self, where: str, **quotas: int) -> None:
        path = "namespaces" if where.count("/") == 1 else "persistent"
        rules = {f"tidegate.{name}": str(value) for name, value in quotas.items()}
        self.properties[f"/admin/v2/{path}/{where}/properties"] = rules


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()


async def fill(client: ShimClient, **topics: int) -> None:
    for number, (name, many) in enumerate(topics.items()):
        stream = await client.open(TOPIC.format(name), "billing")
        due_ms = time.time_ns() // 1_000_000 + (number + 1) * HOUR_MS
        stream.add(entries(many, due_ms))
        await stream.durable()


def rows(text: str) -> dict[str, str]:
    """The lines of the table by topic."""
    return {
        line.split()[-1].partition(":")[0]: line for line in text.splitlines() if line.endswith(":billing")
    }


async def test_a_quota_stands_beside_what_is_held_and_one_that_is_passed_comes_first(
    start: StartDaemon, socket_path: Path, broker: Broker
) -> None:
    broker.sets("public/default", quota=2_000)
    broker.sets("public/default/passed", quota=9)
    broker.properties["/admin/v2/persistent/public/default/none/properties"] = {"tidegate.quota": "none"}
    async with start(), await ShimClient.connect(socket_path) as client:
        await fill(client, fine=10, none=10, passed=10)
        asked = ("status", "--socket", str(socket_path), "--admin-url", broker.url)
        done = await asyncio.to_thread(run, *asked)
        told = json.loads((await asyncio.to_thread(run, *asked, "--json")).stdout)
        plain = json.loads((await asyncio.to_thread(run, *asked[:3], "--json")).stdout)
    table = rows(done.stdout)
    assert list(table) == ["passed", "fine", "none"], done.stderr
    assert table["passed"].startswith("over quota  ")
    assert "  10 of 9  " in table["passed"]
    assert "  10 of 2,000  " in table["fine"]
    assert " of " not in table["none"]
    assert "not known" not in done.stdout
    quotas = {one["topic"].rpartition("/")[2]: one["quota"] for one in told["subscriptions"]}
    assert quotas == {"passed": 9, "fine": 2_000, "none": None}
    assert not any("quota" in one for one in plain["subscriptions"])


async def test_a_broker_that_does_not_tell_is_said_and_all_else_is_shown(
    start: StartDaemon, socket_path: Path, broker: Broker
) -> None:
    broker.sets("public/default", quota=9)
    broker.token = "Bearer secret"  # noqa: S105 of a test
    async with start(), await ShimClient.connect(socket_path) as client:
        await fill(client, orders=10)
        asked = ("status", "--socket", str(socket_path), "--admin-url", broker.url)
        refused = await asyncio.to_thread(run, *asked)
        allowed = await asyncio.to_thread(run, *asked, "--token", "secret")
        (port,) = free_ports(1)
        away = await asyncio.to_thread(run, *asked[:-1], f"http://127.0.0.1:{port}")
    assert f"quotas of 1 topics are not known: {broker.url}: 401: " in refused.stdout
    assert "10 of 9" in rows(allowed.stdout)["orders"]
    assert f"quotas of 1 topics are not known: http://127.0.0.1:{port}: " in away.stdout
    for done in (refused, away):
        assert done.returncode == 0, done.stderr
        assert rows(done.stdout)["orders"].startswith("ok ")


async def test_a_broker_is_asked_about_so_many_topics(
    start: StartDaemon, socket_path: Path, broker: Broker
) -> None:
    async with start(), await ShimClient.connect(socket_path) as client:
        await fill(client, **{f"orders-{number}": 1 for number in range(TOPICS_MAX + 2)})
        done = await asyncio.to_thread(run, "status", "--socket", str(socket_path), "--admin-url", broker.url)
    assert len(broker.asked) == TOPICS_MAX + 1, "and once about their namespace"
    assert "quotas of 2 topics are not known\n" in done.stdout
