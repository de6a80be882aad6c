"""When a broker counts as started: once what every client uses is there.

The state between the health check's ok and the tenant ``public`` lasts an instant in a real Pulsar and cannot
be held there, so a program in its place answers the admin interface.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.process import LocalProcessError

PROGRAM = Path(__file__).parent / "children" / "admin_interface.py"
HEALTH = "/admin/v2/brokers/health"
PUBLIC, SYSTEM = "/admin/v2/namespaces/public", "/admin/v2/namespaces/pulsar"
Answers = dict[str, list[tuple[int, str]]]
READY: Answers = {
    HEALTH: [(200, "ok")],
    PUBLIC: [(200, '["public/default"]')],
    SYSTEM: [(200, '["pulsar/system"]')],
}


def broker_that_answers(directory: Path, answers: Answers) -> Broker:
    """A broker whose program gives each path's answers in turn, the last one again and again."""
    home = directory / "pulsar"
    (home / "bin").mkdir(parents=True)
    (home / "conf").mkdir()
    (home / "conf" / "standalone.conf").write_text("clusterName=standalone\n")
    (directory / "answers.json").write_text(json.dumps(answers))
    command = [sys.executable, PROGRAM, directory / "answers.json", directory / "asked"]
    program = home / "bin" / "pulsar"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(map(str, command))}\n")
    program.chmod(0o755)
    return Broker(home, directory / "broker")


def answers_at_all(broker: Broker) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return bool(httpx.get(f"{broker.admin_url}{HEALTH}", trust_env=False).status_code)
    return False


def asked(directory: Path) -> list[str]:
    return (directory / "asked").read_text().split()


def test_a_healthy_broker_without_its_tenant_is_not_ready(tmp_path: Path) -> None:
    made_late: Answers = {
        HEALTH: [(503, ""), (200, "ok")],
        PUBLIC: [(404, "no such tenant"), (404, "no such tenant"), (200, "[]"), (200, '["public/default"]')],
        SYSTEM: [(404, "no such tenant"), (200, '["pulsar/system"]')],
    }
    with broker_that_answers(tmp_path, made_late) as broker:
        assert broker.running
        assert asked(tmp_path).count(PUBLIC) == 5
        assert asked(tmp_path)[-3:] == [HEALTH, PUBLIC, SYSTEM]
    assert not broker.running


@pytest.mark.parametrize(
    ("never", "said"),
    [
        ({HEALTH: [(503, "")]}, "its health check does not say ok"),
        ({PUBLIC: [(404, "no such tenant")]}, "it has no tenant public"),
        ({PUBLIC: [(200, "[]")]}, "it has no namespace public/default"),
        ({SYSTEM: [(404, "no such tenant")]}, "it has no tenant pulsar"),
    ],
)
def test_what_never_comes_is_named(tmp_path: Path, never: Answers, said: str) -> None:
    broker = broker_that_answers(tmp_path, READY | never)
    try:
        broker.spawn()
        wait_until(lambda: answers_at_all(broker), "its program is up")
        with pytest.raises(LocalProcessError) as late:
            broker.wait_ready(timeout_s=0.0)
    finally:
        broker.kill()
    log = tmp_path / "broker" / "broker.log"
    assert str(late.value) == f"the broker was not ready after 0 s: {said}; its log may say why: {log}"


def test_a_pause_that_raises_ends_the_wait(tmp_path: Path) -> None:
    class EnoughError(Exception):
        pass

    def enough(_: float) -> None:
        raise EnoughError

    broker = broker_that_answers(tmp_path, READY | {PUBLIC: [(404, "")]})
    broker._pause = enough
    with pytest.raises(EnoughError), broker:
        pass
    assert not broker.running


def test_the_jar_is_the_one_of_the_first_start(tmp_path: Path) -> None:
    jar = tmp_path / "shim.jar"
    jar.write_bytes(b"first")
    broker = broker_that_answers(tmp_path, READY)
    broker._jars = [jar]
    with broker:
        jar.write_bytes(b"built again while the broker runs")
        broker.kill()
        broker.start()
        assert (tmp_path / "broker" / "shim.jar").read_bytes() == b"first"
