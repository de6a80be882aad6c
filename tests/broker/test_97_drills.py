"""Drills on a cluster that is not theirs: nothing is started, and nothing killed but by the user's hook."""

from __future__ import annotations

import json
import shlex
import socketserver
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support.cluster import SUBSCRIBED, Cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only


def test_what_may_be_done_is_done_and_what_may_not_is_said(cluster: Cluster, tmp_path: Path) -> None:
    topic = f"persistent://{SUBSCRIBED}/drilled"
    run = subprocess.run(
        [
            sys.executable, "-m", "tidegate.plugin.cli", "drill", "run",
            "consumers-churning", "daemon-killed", "data-directory-lost",
            "--service-url", cluster.broker.service_url, "--admin-url", cluster.broker.admin_url,
            "--topic", topic, "--on-kill", "sh -c 'echo not allowed >&2; exit 3'",
            "--messages", "300", "--json", "--out", str(tmp_path / "out"),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stderr
    churning, killed, lost = [json.loads(line) for line in run.stdout.splitlines()]
    assert (churning["verdict"], churning["reasons"], churning["sent"]) == ("pass", [], 300), run.stderr
    assert killed["verdict"] == "fail"
    assert killed["reasons"][0] == "the hook was to kill the daemon and ended with 3: not allowed"
    assert lost["verdict"] == "fail"
    assert (
        "which does not have: the daemon's data directory (only the test topic is touched"
        in lost["reasons"][0]
    )
    assert cluster.daemon.running
    # Neither the subscriptions nor the topic, which was not there before, nor what was due tomorrow is left.
    assert "left behind" not in run.stderr
    # The broker reads the list of topics out of a cache, which learns of a deletion a moment later.
    wait_until(
        lambda: topic not in cluster.admin.call("GET", f"/persistent/{SUBSCRIBED}"),
        f"{topic} is gone",
        timeout_s=10,
    )


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"--topic": "persistent://public/not-there/x"}, "404 Namespace not found; correct --topic"),
        ({"--service-url": "pulsar://127.0.0.1:9"}, "no broker answers on pulsar://127.0.0.1:9: correct"),
        ({"--admin-url": "http://127.0.0.1:9"}, "nobody answers on http://127.0.0.1:9: correct --admin-url"),
    ],
)
def test_a_wrong_place_is_told_at_once_in_a_line(
    cluster: Cluster, tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    flags = {
        "--service-url": cluster.broker.service_url,
        "--admin-url": cluster.broker.admin_url,
        "--topic": f"persistent://{SUBSCRIBED}/drilled",
        "--out": str(tmp_path / "out"),
        **changed,
    }
    run = subprocess.run(
        [
            sys.executable, "-m", "tidegate.plugin.cli", "drill", "run", "burst", "--messages", "100",
            *(word for pair in flags.items() for word in pair),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )  # fmt: skip
    assert run.returncode == 2, run.stdout + run.stderr
    assert told in run.stderr
    assert len(run.stderr.splitlines()) == 1


_HOOK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(sys.argv[1])
    peer.sendall(" ".join(sys.argv[2:]).encode())
    peer.shutdown(socket.SHUT_WR)
    said = peer.makefile().read()
sys.exit(0 if said == "done" else said)
"""


class _Owner(socketserver.ThreadingUnixStreamServer):
    """Does what a hook asks to the cluster: a stand-in for systemd, which starts what was killed."""

    def __init__(self, cluster: Cluster, path: Path) -> None:
        super().__init__(str(path), _Asked)
        self.cluster = cluster
        self.asked: list[str] = []


class _Asked(socketserver.StreamRequestHandler):
    server: _Owner

    def handle(self) -> None:
        asked = self.rfile.read().decode()
        self.server.asked.append(asked)
        cluster = self.server.cluster
        if asked == "kill daemon":
            cluster.daemon.kill()
            cluster.daemon.start()
        self.wfile.write(b"done")


@pytest.mark.usefixtures("repaired")
def test_a_hook_kills_the_daemon_and_what_it_held_comes_once(cluster: Cluster, tmp_path: Path) -> None:
    hook = tmp_path / "hook.py"
    hook.write_text(_HOOK, encoding="utf-8")
    # A socket's path may have about 100 bytes; pytest's own directories can be longer.
    short = tempfile.TemporaryDirectory(prefix="tidegate-")
    with short as directory, _Owner(cluster, Path(directory) / "hook.sock") as owner:
        threading.Thread(target=owner.serve_forever, daemon=True).start()
        pid = cluster.daemon.pid
        try:
            run = subprocess.run(
                [
                    sys.executable, "-m", "tidegate.plugin.cli", "drill", "run", "daemon-killed",
                    "--service-url", cluster.broker.service_url, "--admin-url", cluster.broker.admin_url,
                    "--topic", f"persistent://{SUBSCRIBED}/drilled",
                    "--on-kill", shlex.join([sys.executable, str(hook), str(owner.server_address)]),
                    "--messages", "300", "--json", "--out", str(tmp_path / "out"),
                ],
                capture_output=True,
                text=True,
                timeout=250,
                check=False,
            )  # fmt: skip
        finally:
            owner.shutdown()
    assert run.returncode == 0, run.stdout + run.stderr
    found = json.loads(run.stdout)
    assert owner.asked == ["kill daemon", "start daemon"]
    assert cluster.daemon.running
    assert cluster.daemon.pid != pid
    figures = [found[name] for name in ("verdict", "sent", "lost", "early", "repeated")]
    assert figures == ["pass", 300, 0, 0, 0]
    (fault,) = found["rounds"][0]["faults"]
    assert fault["seen"]
    assert "left behind" not in run.stderr
