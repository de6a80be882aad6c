"""Connecting the demo's clients: a busy broker is tried again, an interrupt ends the attempts at once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tidegate.plugin.demo import course as demo_run
from tidegate.plugin.demo.clients import ClientError, Clients
from tidegate.plugin.demo.course import Demo
from tidegate.plugin.demo.run import Options
from tidegate.plugin.demo.workload import plan
from tidegate.plugin.stop import InterruptedRunError, Stop


class BusyBroker(Clients):
    """Clients whose first attempts end as they do when a broker does not answer in time."""

    def __init__(self, tmp_path: Path, failures: int) -> None:
        super().__init__("pulsar://127.0.0.1:1", "topic", "sub", plan(10, 10.0, 0), tmp_path / "client.log")
        self.failures = failures
        self.attempts = 0

    def connect(self) -> tuple[int, int]:
        self.attempts += 1
        if self.attempts <= self.failures:
            raise ClientError("TimeOut")
        return 1, 2


def demo(tmp_path: Path) -> Demo:
    options = Options(10, 10.0, 0, "tidegate", tmp_path, None, tmp_path / "out")
    return Demo(options, Stop("the demo"))


def test_it_connects_as_soon_as_the_broker_answers(tmp_path: Path) -> None:
    clients = BusyBroker(tmp_path, failures=2)
    run = demo(tmp_path)
    assert run._connect(clients) == (1, 2)
    assert clients.attempts == 3
    assert run.progress.clients_up


def test_it_gives_up_with_the_last_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "_CONNECT_TIMEOUT_S", 0.5)
    clients = BusyBroker(tmp_path, failures=1_000)
    with pytest.raises(ClientError, match="TimeOut"):
        demo(tmp_path)._connect(clients)
    assert clients.attempts > 1


def test_an_interrupt_ends_the_attempts(tmp_path: Path) -> None:
    run = demo(tmp_path)
    run.stop.request(signal.SIGINT)
    with pytest.raises(InterruptedRunError):
        run._connect(BusyBroker(tmp_path, failures=1_000))
