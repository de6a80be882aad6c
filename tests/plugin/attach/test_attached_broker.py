"""A broker that was attached by the command delays with Tidegate; detached, it has nothing of it left."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.support.cluster import daemon_of
from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon

pytestmark = pytest.mark.broker
DELAY_MS = 1_500


@pytest.fixture
def whole_home(distribution: Path, tmp_path: Path) -> Path:
    """A whole Pulsar that may be changed: links to the distribution's jars, copies of the rest."""
    home = tmp_path / "pulsar"
    home.mkdir()
    # The start script follows links to find its home, so it is a copy as well.
    shutil.copytree(distribution / "bin", home / "bin")
    shutil.copytree(distribution / "conf", home / "conf")
    (home / "lib").mkdir()
    for jar in (distribution / "lib").iterdir():
        (home / "lib" / jar.name).symlink_to(jar)
    return home


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-") as short,
        daemon_of(tmp_path, Path(short) / "daemon.sock") as daemon,
    ):
        yield daemon


def tidegate(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "tidegate.plugin.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def held(daemon: Daemon, home: Path) -> int:
    status = json.loads(tidegate("status", "--socket", daemon.socket_path, "--pulsar-home", home, "--json"))
    assert status["attached"]["attached"]
    return sum(one["held"] for one in status["subscriptions"])


def test_an_attached_broker_delays_with_tidegate(whole_home: Path, daemon: Daemon, tmp_path: Path) -> None:
    tidegate("attach", whole_home, "--socket", daemon.socket_path, "--tune-acks")
    with Broker(whole_home, tmp_path / "broker") as broker:
        log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "client.log"))
        client = pulsar.Client(broker.service_url, logger=log)
        consumer = client.subscribe("attached", "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer("attached")
        deliver_at_ms = time.time_ns() // 1_000_000 + DELAY_MS
        producer.send(b"later", deliver_at=deliver_at_ms)
        producer.send(b"tomorrow", deliver_at=deliver_at_ms + 86_400_000)
        message = consumer.receive(timeout_millis=60_000)
        assert time.time_ns() // 1_000_000 >= deliver_at_ms
        assert message.data() == b"later"
        consumer.acknowledge(message)
        wait_until(lambda: held(daemon, whole_home) == 1, "the daemon holds the message due tomorrow")
        client.close()
    tidegate("detach", whole_home)
    assert not list((whole_home / "lib").glob("tidegate*"))
    assert not (whole_home / "conf" / "tidegate").exists()
