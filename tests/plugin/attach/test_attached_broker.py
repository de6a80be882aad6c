"""A broker attached by the command delays with Tidegate; detached, it has nothing of it left.

The broker chooses its port, then listens with TLS alone: both name it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pulsar
import pytest

from tests.support import certificates
from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon

pytestmark = pytest.mark.broker
DELAY_MS = 1_500
MESSAGES = 500
WAIT_MS = 120_000
"""Long enough for a restart of the broker on a busy machine."""
PULSARS_TICK_MS = 1_000
"""Pulsar's in-memory tracker delivers up to a tick early (`delayedDeliveryTickTimeMillis`)."""


def tidegate(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "tidegate.plugin.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def status(daemon: Daemon, home: Path) -> dict[str, Any]:
    found = json.loads(tidegate("status", "--socket", daemon.socket_path, "--pulsar-home", home, "--json"))
    assert found["attached"]["attached"]
    assert len(found["subscriptions"]) <= 1
    return dict(found["subscriptions"][0]) if found["subscriptions"] else {}


def listens_at(broker: Broker, url: str) -> str:
    """Where the broker sends its clients."""
    topic = f"{broker.admin_url}/lookup/v2/topic/persistent/public/default/attached"
    found: list[str] = []

    def said() -> bool:
        answer = httpx.get(topic, trust_env=False, timeout=60)
        if answer.is_success:
            found.append(urlsplit(str(answer.json()[url])).netloc)
        return answer.is_success

    wait_until(said, "the broker says where clients are to go")
    return found[-1]


def test_an_attached_broker_delays_with_tidegate(whole_home: Path, daemon: Daemon, tmp_path: Path) -> None:
    conf = whole_home / "conf" / "standalone.conf"
    plain = conf.read_text().replace("\nbrokerServicePort=6650\n", "\nbrokerServicePort=0\n")
    assert "\nbrokerServicePort=0\n" in plain
    conf.write_text(plain)
    made = certificates.make(tmp_path)
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "client.log"))
    tidegate("attach", whole_home, "--socket", daemon.socket_path, "--tune-acks")
    with Broker(whole_home, tmp_path / "broker", conf={"brokerServicePort": "0"}) as broker:
        address = listens_at(broker, "brokerUrl")
        client = pulsar.Client(f"pulsar://{address}", operation_timeout_seconds=60, logger=log)
        consumer = client.subscribe("attached", "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer("attached")
        deliver_at_ms = time.time_ns() // 1_000_000 + DELAY_MS
        producer.send(b"later", deliver_at=deliver_at_ms)
        producer.send(b"tomorrow", deliver_at=deliver_at_ms + 86_400_000)
        message = consumer.receive(timeout_millis=60_000)
        assert time.time_ns() // 1_000_000 >= deliver_at_ms
        assert message.data() == b"later"
        consumer.acknowledge(message)
        wait_until(
            lambda: status(daemon, whole_home).get("held") == 1, "the daemon holds the message due tomorrow"
        )
        assert status(daemon, whole_home)["broker"] == address
        client.close()

        broker.stop()
        broker.configure(tls_only(made))
        broker.start()
        secured = listens_at(broker, "brokerUrlTls")
        assert secured != address
        client = pulsar.Client(
            f"pulsar+ssl://{secured}",
            tls_trust_certs_file_path=str(made.authority),
            operation_timeout_seconds=60,
            logger=log,
        )
        client.subscribe("attached", "s", consumer_type=pulsar.ConsumerType.Shared)
        wait_until(
            lambda: status(daemon, whole_home).get("broker") == secured,
            "the broker's name is where it listens",
        )
        assert status(daemon, whole_home)["held"] == 1
        client.close()
    tidegate("detach", whole_home)
    assert conf.read_text() == plain
    assert not list((whole_home / "lib").glob("tidegate*"))
    assert not (whole_home / "conf" / "tidegate").exists()


def test_a_detached_broker_delivers_what_waited(whole_home: Path, daemon: Daemon, tmp_path: Path) -> None:
    """The way back: Pulsar's in-memory tracker reads the topic, and the daemon is gone."""
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(tmp_path / "client.log"))
    tidegate("attach", whole_home, "--socket", daemon.socket_path)
    with Broker(whole_home, tmp_path / "broker") as broker:
        client = pulsar.Client(broker.service_url, operation_timeout_seconds=60, logger=log)
        consumer = client.subscribe("left", "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer("left")
        due_ms = {}
        for number in range(MESSAGES):
            due_ms[number] = now_ms() + WAIT_MS + number * 10
            producer.send_async(str(number).encode(), lambda *_: None, deliver_at=due_ms[number])
        producer.flush()
        wait_until(
            lambda: status(daemon, whole_home).get("held") == MESSAGES, "the daemon holds all messages"
        )
        consumer.close()
        client.close()
        broker.stop()
        tidegate("detach", whole_home)
        daemon.stop()
        broker.start()
        client = pulsar.Client(broker.service_url, operation_timeout_seconds=60, logger=log)
        consumer = client.subscribe("left", "s", consumer_type=pulsar.ConsumerType.Shared)
        came_ms: dict[int, int] = {}
        for _ in range(MESSAGES):
            message = consumer.receive(timeout_millis=2 * WAIT_MS)
            came_ms[int(message.data())] = now_ms()
            consumer.acknowledge(message)
        client.close()
    assert came_ms.keys() == due_ms.keys()
    early = [number for number, at_ms in came_ms.items() if at_ms < due_ms[number] - PULSARS_TICK_MS]
    assert not early


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def tls_only(made: certificates.Certificates) -> dict[str, str]:
    """Settings of a broker that listens with TLS alone, on a port that it chooses, as do its own clients."""
    return {
        "brokerServicePort": "",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(made.server),
        "tlsKeyFilePath": str(made.server_key),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(made.authority),
    }
