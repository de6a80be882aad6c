"""A real broker in which one dispatcher has Pulsar's own tracker, though Tidegate is attached."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pulsar
import pytest

from tests.support.cluster import PULSAR_HOME, SHIM_JAR, daemon_of
from tests.support.daemons import run
from tests.support.java_client import jdk_program
from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.trackers import FACTORY_KEY, tidegate_conf
from tidegate.plugin.wire.client import ask_socket

pytestmark = pytest.mark.tidegate_only
FACTORY = Path(__file__).parent / "java" / "BypassingFactory.java"
TOPIC = "persistent://public/default/bypassed"
MESSAGES = 20


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """The factory, compiled against the Pulsar that runs."""
    classes, path = tmp_path / "classes", tmp_path / "bypassing.jar"
    subprocess.run(
        [
            jdk_program("javac"),
            "--release",
            "17",
            "-nowarn",
            "-proc:none",
            "-implicit:none",
            "-d",
            classes,
            "-cp",
            f"{SHIM_JAR}:{PULSAR_HOME / 'lib'}/*",
            FACTORY,
        ],
        check=True,
        timeout=300,
    )
    subprocess.run([jdk_program("jar"), "-cf", path, "-C", classes, "."], check=True, timeout=300)
    return path


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-") as short,
        daemon_of(tmp_path, Path(short) / "daemon.sock") as daemon,
    ):
        yield daemon


def status(daemon: Daemon) -> dict[str, Any]:
    return ask_socket(daemon.socket_path, {"what": "status"})


def test_a_bypassed_dispatcher_is_said_until_it_is_gone(daemon: Daemon, jar: Path, tmp_path: Path) -> None:
    conf = tidegate_conf(daemon.socket_path) | {FACTORY_KEY: "BypassingFactory"}
    broker = Broker(PULSAR_HOME, tmp_path / "broker", conf=conf, extra_classpath=[SHIM_JAR, jar])
    try:
        broker.start()
        client = pulsar.Client(broker.service_url)
        ours, theirs = (
            client.subscribe(TOPIC, name, consumer_type=pulsar.ConsumerType.Shared)
            for name in ("ours", "bypassed")
        )
        producer = client.create_producer(TOPIC)
        for number in range(MESSAGES):
            producer.send_async(b"%d" % number, None, deliver_after=timedelta(hours=1))
        producer.flush()
        wait_until(lambda: status(daemon)["bypassed"]["dispatchers"] == 1, "the bypass is told")
        said = status(daemon)
        (one,) = said["bypassed"]["named"]
        assert (one["topic"], one["subscription"], one["delayed"]) == (TOPIC, "bypassed", MESSAGES)
        assert "BypassingFactory" in one["reason"]
        assert not said["daemon"]["ready"]
        assert f"{TOPIC}:bypassed" in said["daemon"]["not_ready"][0]
        assert [one["held"] for one in said["subscriptions"]] == [MESSAGES]
        socket = str(daemon.socket_path)
        done = run("doctor", "--socket", socket, "--admin-url", broker.admin_url)
        assert done.returncode == 1
        first, _, second, *_ = done.stdout.splitlines()
        assert first.startswith(f"FAULT    tracker      {TOPIC}:bypassed: BYPASSED: Tidegate does not have")
        assert (
            second
            == f"FAULT    tracker      BYPASSED: the broker at {broker.admin_url} runs BypassingFactory"
        )
        log = broker.log_path.read_text("utf-8", "replace")
        assert f"[{TOPIC} / bypassed] BYPASSED: Tidegate does not have its {MESSAGES} delayed" in log
        assert f"[{TOPIC} / ours] BYPASSED" not in log
        theirs.unsubscribe()
        wait_until(lambda: status(daemon)["daemon"]["ready"], "what is gone bypasses nothing")
        assert status(daemon)["bypassed"] == {"dispatchers": 0, "named": []}
        ours.close()
        client.close()
    finally:
        broker.kill()
