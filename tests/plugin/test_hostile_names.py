"""Names that a client chose, wherever an operator meets them: they arrive as data."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.daemons import DaemonProcess, StartDaemon, run
from tests.support.shim_client import ShimClient, entries
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.shared.shown import shown

TOPIC = "persistent://public/default/orders"
HOUR_MS = 3_600_000
NAMES = (
    "[/]",
    "orders[eu]",
    ":smile:",
    "red\x1b[31m\x1b]0;title\x07",
    "two\nlines\r",
    "\x9b31m\u202egnp",
    'quote"back\\slash',
    "nul\0",
    "back\\x00slash",
)
Serve = Callable[..., DaemonProcess]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def opened(client: ShimClient) -> None:
    for name in NAMES:
        for stream in (await client.open(TOPIC, name), await client.open(f"{TOPIC}-{name}")):
            stream.add(entries(1, now_ms() + HOUR_MS))
            await stream.durable()


def assert_harmless(text: str) -> None:
    for line in text.splitlines():
        assert line.isprintable(), line
    assert "gnp" in text, "there is something to see"


async def test_the_tools_show_them(serve: Serve, socket_path: Path) -> None:
    daemon = serve("--log-format", "human", "--log-level", "debug")
    await daemon.ready()
    async with await ShimClient.connect(socket_path, "broker\x1b[31m\n") as client:
        await opened(client)
        for command in (("status",), ("width", "*"), ("width", "*", "10m")):
            done = await asyncio.to_thread(run, *command, "--socket", str(socket_path), COLUMNS="200")
            assert done.returncode == 0, done.stderr
            assert_harmless(done.stdout)
            for name in NAMES:
                assert shown(name) in done.stdout, command
        for command in (("status", "--json"), ("width", "*", "--json")):
            done = await asyncio.to_thread(run, *command, "--socket", str(socket_path))
            assert_harmless(done.stdout)
            known = {one["subscription"] for one in json.loads(done.stdout)["subscriptions"]}
            assert known == {*NAMES, "sub"}
        done = await asyncio.to_thread(run, "width", "no\x1b[31m", "--socket", str(socket_path))
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert done.stderr.strip().isprintable()
    assert daemon.stop() == 0
    assert_harmless(daemon.log())


async def test_http_has_them_as_they_are(start: StartDaemon, socket_path: Path) -> None:
    async with start(http="127.0.0.1:0") as daemon, await ShimClient.connect(socket_path) as client:
        await opened(client)
        daemon.health.block("read", "cannot read\x1b[31m two\nlines")
        async with httpx.AsyncClient(trust_env=False) as http:
            base = f"http://127.0.0.1:{daemon.http_port}"
            status, metrics, ready = [
                (await http.get(f"{base}/{path}")).text for path in ("status", "metrics", "readyz")
            ]
    assert {one["subscription"] for one in json.loads(status)["subscriptions"]} == {*NAMES, "sub"}
    assert_harmless(status)
    assert_harmless(metrics)
    assert ready == "cannot read\\x1b[31m two\\nlines\n"
    held = [
        sample.labels
        for family in text_string_to_metric_families(metrics)
        if family.name == "tidegate_subscription_entries_held"
        for sample in family.samples
    ]
    assert {labels["subscription"] for labels in held} == {shown(name) for name in NAMES} | {"sub"}
    assert {labels["topic"] for labels in held} == {f"{TOPIC}-{shown(name)}" for name in NAMES} | {TOPIC}


def test_a_log_line_for_people_is_one_line() -> None:
    out = io.StringIO()
    log = make_logger("human", "info", out)
    log.info("an event\x1b[31m\n", broker="one\x1b[31m\ntwo", stream=["three\x1b\n"], error="[/]")
    log.info("plain", broker="broker-1")
    first, second = out.getvalue().splitlines()
    assert first.isprintable()
    assert "one\\x1b[31m\\ntwo" in first
    assert "[/]" in first
    assert "broker=broker-1" in second
