"""Drills on a cluster that is not theirs: nothing is started, and nothing killed but by the user's hook."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import SUBSCRIBED, Cluster

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
    churning, killed, lost = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 1, run.stderr
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
    assert topic not in cluster.admin.call("GET", f"/persistent/{SUBSCRIBED}")
    assert "left behind" not in run.stderr


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
