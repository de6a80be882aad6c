"""The record of changes: who, when, what became of it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import stat
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.daemons import StartDaemon
from tests.support.deciding import TOPIC, positions, waiting
from tests.support.flaky_store import FlakyStore
from tests.support.served import Served, serving
from tests.support.shim_client import ShimClient
from tests.support.waiting import until
from tidegate import Client
from tidegate.index import PositionSet
from tidegate.index.clock import SystemClock
from tidegate.plugin.daemon.audit_log import NAMES, AuditLog
from tidegate.plugin.daemon.cancelling import Cancelling
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.errors import UserError
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.client import ask_socket

ORDERS = "persistent/public/default/orders/sub"


def asked(what: str, chosen: PositionSet | None = None, **more: Any) -> dict[str, Any]:
    """A query as the socket takes it."""
    some = {} if chosen is None else {"positions": base64.b64encode(chosen.serialize()).decode()}
    return {"what": what, "topic": TOPIC, "subscription": "sub", **some, **more}


def lines(folder: Path) -> list[dict[str, Any]]:
    """All lines, the oldest first."""
    found = []
    for name in reversed(NAMES):
        if (folder / name).exists():
            found += [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
    return found


@pytest.fixture
def data(short_dir: Path) -> Path:
    return short_dir / "data"


async def test_each_change_is_a_line(served: Served, data: Path, socket_path: Path) -> None:
    await waiting(served.broker, TOPIC, 2)
    await served.get(f"{ORDERS}/waiting")
    await served.post(f"{ORDERS}/cancel", {"ids": ["5:1"], "dry_run": True})
    await served.post(f"{ORDERS}/cancel", {"ids": ["five"]})
    assert not data.exists() or lines(data) == []
    await served.post(f"{ORDERS}/cancel", {"ids": ["5:1", "5:2", "9:9"]})
    (one,) = lines(data)
    assert one.pop("time").endswith("+00:00")
    assert one == {
        "command": "cancel",
        "role": "token, from 127.0.0.1",
        "topic": TOPIC,
        "subscription": "sub",
        "done": 1,
        "too_late": 1,
        "acknowledged": 0,
        "unknown": 1,
        "undecided": 0,
        "ids": ["5:1", "5:2", "9:9"],
    }
    with Client(socket=socket_path) as client:
        await asyncio.to_thread(client.cancel, "orders", "sub", all=True)
    (_, two) = lines(data)
    assert two["peer"] == f"uid {os.geteuid()}, pid {os.getpid()}"
    assert "role" not in two
    assert (two["topic"], two["done"], len(two["ids"])) == (TOPIC, 98, 10)
    assert stat.S_IMODE((data / NAMES[0]).stat().st_mode) == 0o600
    text = (await served.daemon.exposition()).decode()
    assert 'tidegate_messages_changed_total{outcome="done"} 99.0' in text
    assert 'tidegate_messages_changed_total{outcome="too_late"} 2.0' in text
    assert "a long random word" not in (data / NAMES[0]).read_text("utf-8")


async def test_it_is_bounded_and_the_oldest_go(
    start: StartDaemon, socket_path: Path, token_file: Path, data: Path
) -> None:
    async with serving(start, socket_path, token_file, audit_bytes=8_000) as served:
        await waiting(served.broker)
        for n in range(100):
            await served.post(f"{ORDERS}/cancel", {"ids": [f"5:{n}"]})
    assert sum((data / name).stat().st_size for name in NAMES) <= 8_000
    kept = [one["ids"] for one in lines(data)]
    assert kept == [[f"5:{n}"] for n in range(100 - len(kept), 100)]
    assert len(kept) > 15
    assert {stat.S_IMODE((data / name).stat().st_mode) for name in NAMES} == {0o600}


async def test_it_can_be_off(start: StartDaemon, socket_path: Path, token_file: Path, data: Path) -> None:
    async with serving(start, socket_path, token_file, audit_bytes=0) as served:
        await waiting(served.broker)
        await served.post(f"{ORDERS}/cancel", {"all": True})
        assert 'messages_changed_total{outcome="done"} 100.0' in (await served.daemon.exposition()).decode()
    assert not data.exists()


async def test_a_failure_to_write_undoes_nothing(served: Served, data: Path, log: Any) -> None:
    await waiting(served.broker)
    data.mkdir()
    (data / NAMES[0]).symlink_to(data / "elsewhere")
    answer = await served.post(f"{ORDERS}/cancel", {"ids": ["5:1"]})
    assert answer.json()["done"] == 1
    assert not (data / "elsewhere").exists()
    assert "tidegate_audit_failures_total 1.0" in (await served.daemon.exposition()).decode()
    assert "a change could not be written to the audit log" in log.getvalue()


async def test_a_change_that_fails_halfway_is_a_line(
    start: StartDaemon, socket_path: Path, token_file: Path, data: Path
) -> None:
    store = FlakyStore()
    async with serving(start, socket_path, token_file, store=store) as served:
        stream = await waiting(served.broker)
        store.failing = True
        answer = await served.post(f"{ORDERS}/cancel", {"ids": ["5:1"]})
        assert answer.json()["undecided"] == 1
        assert stream.cancels
        await until(lambda: bool(lines(data)))
        (one,) = lines(data)
        assert "the store fails" in one["why"]
        assert (one["done"], one["undecided"], one["ids"]) == (0, 1, ["5:1"])
        store.failing = False


async def test_a_change_that_meets_the_daemons_end_is_a_line(
    start: StartDaemon, socket_path: Path, data: Path
) -> None:
    cancel = asked("cancel", positions(1, 2))
    async with start(), await ShimClient.connect(socket_path) as broker:
        stream = await waiting(broker)
        stream.on_cancel = stream.on_pace = None
        requests = [
            asyncio.create_task(asyncio.to_thread(ask_socket, socket_path, one, 30.0))
            for one in (cancel, cancel | {"dry_run": True}, asked("pace", kind="paused"))
        ]
        await until(lambda: len(stream.cancels) == 2 and bool(stream.paces))
    assert all(isinstance(one, UserError) for one in await asyncio.gather(*requests, return_exceptions=True))
    cancelled, paced = sorted(lines(data), key=lambda line: str(line["command"]))
    assert (cancelled["command"], cancelled["ids"]) == ("cancel", ["5:1", "5:2"])
    assert (paced["command"], paced["kind"]) == ("pace", "paused")
    for one in (cancelled, paced):
        assert (one["outcome"], one["error"]) == ("unfinished", "the daemon stopped before the end was known")
        assert one["peer"].endswith(f"pid {os.getpid()}")
        assert "done" not in one


async def test_a_bug_amid_a_change_leaves_a_line(start: StartDaemon, socket_path: Path, data: Path) -> None:
    async with start(), await ShimClient.connect(socket_path) as broker:
        await waiting(broker)
        with patch.object(Cancelling, "_learn", side_effect=ZeroDivisionError), pytest.raises(UserError):
            await asyncio.to_thread(ask_socket, socket_path, asked("cancel", positions(1)))
    (one,) = lines(data)
    assert one["outcome"] == "unfinished"
    assert "ZeroDivisionError" in one["error"]


async def test_a_pace_that_one_partition_has_is_a_line(
    start: StartDaemon, socket_path: Path, data: Path
) -> None:
    async with (
        start(),
        await ShimClient.connect(socket_path) as broker,
        await ShimClient.connect(socket_path, version=5, name="broker-2") as older,
    ):
        first = await waiting(broker, f"{TOPIC}-partition-0")
        await waiting(older, f"{TOPIC}-partition-1")
        assert not (await asyncio.to_thread(ask_socket, socket_path, asked("pace", kind="paused")))["done"]
        assert first.paces
        assert not (await asyncio.to_thread(ask_socket, socket_path, asked("pace")))["done"]
        with pytest.raises(UserError, match="kind must be"):
            await asyncio.to_thread(ask_socket, socket_path, asked("pace", kind="slowly"))
    (one,) = lines(data)
    assert (one["command"], one["kind"], one["done"]) == ("pace", "paused", False)
    assert "restart it with this version's jar" in one["why"]


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: "test")


def audit_log(data: Path, metrics: Metrics, log: Any, executor: Executor | None = None) -> AuditLog:
    return AuditLog(
        data,
        1 << 20,
        SystemClock(),
        executor=executor,
        metrics=metrics,
        log=make_logger("json", "debug", log),
    )


async def test_a_line_that_is_cut_off_is_counted_and_the_next_is_whole(
    data: Path, metrics: Metrics, log: Any
) -> None:
    written = audit_log(data, metrics, log)
    await written.write(asked("cancel"), ["5:1"], {"done": 1}, None)
    size = (data / NAMES[0]).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
    try:
        await written.write(asked("cancel"), ["5:2"], {"done": 1}, None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (data / NAMES[0]).stat().st_size == size + 20
    (failures,) = metrics.audit_failures.collect()
    assert failures.samples[0].value == 1
    await audit_log(data, metrics, log).write(asked("cancel"), ["5:3"], {"done": 1}, None)
    first, torn, last = (data / NAMES[0]).read_text("utf-8").splitlines()
    assert (json.loads(first)["ids"], json.loads(last)["ids"]) == (["5:1"], ["5:3"])
    assert len(torn) == 20


async def test_what_the_system_writes_in_parts_is_one_line(
    data: Path, metrics: Metrics, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:50]))
    await audit_log(data, metrics, log).write(asked("cancel"), ["5:1"], {"done": 1}, None)
    assert [one["ids"] for one in lines(data)] == [["5:1"]]


async def test_a_line_that_waits_for_its_thread_outlives_its_request(
    data: Path, metrics: Metrics, log: Any
) -> None:
    may_go = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        executor.submit(may_go.wait)
        written = audit_log(data, metrics, log, executor)
        task = asyncio.create_task(written.write(asked("cancel"), ["5:1"], {"done": 1}, None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        may_go.set()
    await written.write(asked("cancel"), ["5:2"], {"done": 1}, None)
    assert [one["ids"] for one in lines(data)] == [["5:1"], ["5:2"]]
