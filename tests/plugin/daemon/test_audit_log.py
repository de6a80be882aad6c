"""The record of changes: who, when, what became of it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import StartDaemon
from tests.support.deciding import TOPIC, waiting
from tests.support.flaky_store import FlakyStore
from tests.support.served import Served, serving
from tests.support.waiting import until
from tidegate import Client
from tidegate.plugin.daemon.audit_log import NAMES

ORDERS = "persistent/public/default/orders/sub"


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
    assert (two["topic"], two["done"], len(two["ids"])) == ("orders", 98, 10)
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
        assert answer.status_code == 503
        assert stream.cancels
        await until(lambda: bool(lines(data)))
        (one,) = lines(data)
        assert "the store fails" in one["error"]
        assert one["ids"] == ["5:1"]
        store.failing = False
