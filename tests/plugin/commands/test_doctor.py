"""``tidegate doctor`` as a user types it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import StartDaemon, assert_one_line, run
from tests.support.shim_client import ShimClient, entries
from tidegate.plugin.attach import unpacking
from tidegate.plugin.attach.pulsar_home import CONF_NAMES
from tidegate.plugin.doctor.finding import Verdict

HOUR_MS = 3_600_000
TOPIC = "persistent://public/default/orders"
HOSTILE = "red\x1b[31m\nline"


def checks(output: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(output)["findings"]:
        found.setdefault(one["check"], []).append(one)
    return found


def test_without_a_daemon_it_says_how_to_start_one(short_dir: Path) -> None:
    done = run("doctor", "--socket", str(short_dir / "none.sock"))
    assert done.returncode == 1
    first, remedy, *_, counts = done.stdout.splitlines()
    assert first.startswith("FAULT    socket       no daemon answers on ")
    assert remedy.strip().startswith("do: ")
    assert counts == "1 fault, 0 warnings, 1 note, 0 ok"


def test_a_home_that_is_none_is_a_fault(short_dir: Path, tmp_path: Path) -> None:
    done = run("doctor", str(tmp_path), "--socket", str(short_dir / "none.sock"), "--json")
    assert done.returncode == 1
    (conf,) = checks(done.stdout)["conf"]
    assert conf["verdict"] == Verdict.FAULT
    assert "is not a Pulsar home" in conf["says"]


def test_an_attached_home_names_the_socket_to_ask(home: Path, short_dir: Path) -> None:
    path = short_dir / "attached.sock"
    for name in CONF_NAMES:
        # Else another user's /tmp/pulsar-nar on this machine is a warning.
        with (home / "conf" / name).open("a") as conf:
            conf.write(f"\n{unpacking.KEY}={short_dir}\n")
    assert run("attach", str(home), "--socket", str(path)).returncode == 0
    done = run("doctor", str(home), "--json")
    found = checks(done.stdout)
    assert [one["verdict"] for one in found["conf"]] == [Verdict.OK]
    assert [one["verdict"] for one in found["jar"]] == [Verdict.OK]
    assert {one["verdict"] for one in found["ack-settings"]} == {Verdict.WARNING}
    assert str(path) in found["socket"][0]["says"]
    assert json.loads(done.stdout)["versions"]["pulsar_home"] == "4.0.8"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--admin-url", "ftp://broker"),
        ("--admin-url", "http://user:hunter2@broker"),
        ("--admin-url", "broker:1", "--token", "a", "--token-file", "b"),
        ("--admin-url", "broker:1", "--token", "a\nb"),
        ("--admin-url", "broker:1", "--tls-ca-file", "/nowhere/there"),
        ("--nothing",),
    ],
)
def test_wrong_usage_is_one_line_and_2(arguments: tuple[str, ...]) -> None:
    done = run("doctor", *arguments)
    assert_one_line(done, "", 2)
    assert not done.stdout
    assert "hunter2" not in done.stderr


def test_a_flag_beats_a_variable(short_dir: Path, token_file: Path) -> None:
    at = ("doctor", "--socket", str(short_dir / "none.sock"), "--admin-url", "127.0.0.1:9", "--json")
    done = run(*at, "--token-file", str(token_file), TIDEGATE_TOKEN="other")  # noqa: S106
    assert done.returncode == 1, done.stderr
    assert "admin" in checks(done.stdout)
    done = run(*at, TIDEGATE_TOKEN_FILE=str(token_file), TIDEGATE_TOKEN="other")  # noqa: S106
    assert_one_line(done, "--token or --token-file", 2)


async def test_a_daemon_with_names_of_a_client(start: StartDaemon, socket_path: Path) -> None:
    now_ms = time.time_ns() // 1_000_000
    closed = socket.create_server(("127.0.0.1", 0))
    url = f"127.0.0.1:{closed.getsockname()[1]}"
    closed.close()
    async with start(), await ShimClient.connect(socket_path, "broker\x1b[31m") as client:
        stream = await client.open(TOPIC, HOSTILE, credit=3)
        stream.add(entries(5, now_ms - 60_000))
        stream.add(entries(5, now_ms + 20 * 365 * 24 * HOUR_MS, ledger_id=2))
        await stream.durable()
        arguments = ("doctor", "--socket", str(socket_path), "--admin-url", url)
        done = await asyncio.to_thread(run, *arguments)
        as_json = await asyncio.to_thread(run, *arguments, "--json")
    assert done.returncode == as_json.returncode == 1
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert f"{TOPIC}:red\\x1b[31m\\nline: its first message is overdue" in done.stdout
    found = checks(as_json.stdout)
    assert found["overdue"][0]["subscription"] == HOSTILE
    assert found["delays"][0]["says"] == "5 messages are due in more than 10 years"
    assert [one["verdict"] for one in found["admin"]] == [Verdict.FAULT]
    well = {check for check, each in found.items() if {one["verdict"] for one in each} == {Verdict.OK}}
    assert {"socket", "ready", "version", "brokers", "tracker", "damage"} <= well
    assert "ttl" not in found
