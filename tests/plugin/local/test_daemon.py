"""A daemon as the demo, the tests and the benches start it."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import wait_until
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.process import LocalProcessError


def test_it_is_ready_when_it_says_so_and_keeps_its_addresses(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEGATE_LOG_FORMAT", "neither")  # of whoever starts it: not for this daemon
    daemon = Daemon(short_dir, settings={"heartbeat_ms": "750"}, arguments=["--log-format", "json"])
    with daemon:
        first = daemon.pid
        assert httpx.get(f"{daemon.url}/readyz", trust_env=False).is_success
        # The log has its lines once brokers have been served for a while.
        wait_until(lambda: '"serving"' in daemon.log_path.read_text("utf-8"), "it says so")
        daemon.kill()
        assert not daemon.running
        daemon.start()
        assert daemon.pid != first
        wait_until(lambda: daemon.log_path.read_text("utf-8").count('"serving"') == 2, "it says so again")
        status = httpx.get(f"{daemon.url}/status", trust_env=False).json()
        assert status["daemon"]["socket"] == str(daemon.socket_path)
        assert daemon.stop() == 0
    events = [json.loads(line)["event"] for line in daemon.log_path.read_text("utf-8").splitlines()]
    assert events.count("serving") == 2


def test_a_second_start_is_refused_while_it_runs(short_dir: Path) -> None:
    with (
        Daemon(short_dir) as daemon,
        pytest.raises(LocalProcessError, match=f"the daemon already runs as pid {daemon.pid}"),
    ):
        daemon.spawn()


def test_one_that_ends_while_starting_names_its_log(short_dir: Path) -> None:
    daemon = Daemon(short_dir, arguments=["--log-level", "loud"])
    with pytest.raises(LocalProcessError, match=f"the daemon ended while starting.*{daemon.log_path}"):
        daemon.start()
    assert "log_level" in daemon.log_path.read_text("utf-8")


def test_one_that_does_not_answer_says_where_it_was_looked_for(short_dir: Path) -> None:
    with Daemon(short_dir) as daemon, daemon.paused():
        with pytest.raises(LocalProcessError) as late:
            daemon.wait_ready(timeout_s=0.5)
        assert f"the daemon on {daemon.socket_path} does not answer" in str(late.value)
        assert str(daemon.log_path) in str(late.value)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(daemon.socket_path))  # it hangs, its socket is open
