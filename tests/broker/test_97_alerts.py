"""A real Prometheus fires the alerts that need a broker, from real faults of a broker and its daemon."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.cluster import Cluster, TrackerKind
from tests.support.daemons import run
from tests.support.inbox import Inbox, assert_exactly, assert_not_early
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.prometheus import (
    OF_A_BROKER,
    SCRAPE_S,
    Prometheus,
    panels_without_data,
    values_of_variable,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.tidegate_only, pytest.mark.prometheus]
PENDING_MAX = 1_000
SOON_MS = 15_000
"""Further than the horizon, so that only the daemon knows when it is time."""
LATE_S = 3.0
PANEL_LOOKS = 80
OURS = {
    "TidegateDisconnected",
    "TidegateIndexLogFailing",
    "TidegateLateHandOut",
    "TidegatePaused",
    "TidegateQuota",
    "TidegateReadingPaused",
}


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "index-logs"
    path.mkdir()
    return path


@pytest.fixture
def stand(tmp_path: Path, folder: Path) -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(
            TrackerKind.TIDEGATE,
            tmp_path / "alerts",
            Path(short) / "daemon.sock",
            index_log=f"file://{folder}",
            conf={"tidegateMaxPendingEntries": str(PENDING_MAX)},
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture
def lane(stand: Cluster) -> Iterator[Lane]:
    made = Lane(stand, "alerts")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def prometheus(stand: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    targets = {"tidegate": [stand.daemon.url], "pulsar": [stand.broker.admin_url]}
    where = {job: [urlsplit(one).netloc for one in urls] for job, urls in targets.items()}
    with Prometheus(tmp_path / "prometheus", where) as started:
        yield started


def every_panel_of_a_broker_has_data(prometheus: Prometheus) -> None:
    """Those of daemons alone: tests/plugin/telemetry/test_alerts.py."""
    empty: set[str] = set()
    for _ in range(PANEL_LOOKS):
        unseen = panels_without_data(prometheus)
        empty = {expr for expr in unseen if any(one in expr for one in OF_A_BROKER)}
        if not empty:
            return
        time.sleep(SCRAPE_S / 4)
    pytest.fail(f"panels without data: {sorted(empty)}")


def test_faults_of_broker_and_daemon_fire_their_alerts(
    stand: Cluster, lane: Lane, prometheus: Prometheus, folder: Path
) -> None:
    daemon, broker = (urlsplit(one).netloc for one in (stand.daemon.url, stand.broker.admin_url))
    socket = str(stand.daemon.socket_path)

    def firing() -> set[str]:
        return OURS & {name for name, _ in prometheus.firing()}

    def ends(name: str) -> None:
        wait_until(lambda: name not in firing(), f"{name} ends")

    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 100)
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far), "the daemon holds them")
    wait_until(
        lambda: prometheus.has_data('pulsar_delayed_tidegate_connected{subscription!=""} == 1'),
        "it is scraped",
    )
    assert not firing()

    assert run("pause", lane.topic, "sub", "--socket", socket).returncode == 0
    prometheus.wait_firing("TidegatePaused", daemon)
    assert run("resume", lane.topic, "sub", "--socket", socket).returncode == 0
    ends("TidegatePaused")

    policy = ("--admin-url", stand.broker.admin_url)
    assert run("policy", "set", lane.topic, "quota", str(len(far) - 1), *policy).returncode == 0
    prometheus.wait_firing("TidegateQuota", broker)
    assert run("policy", "set", lane.topic, "quota", str(len(far)), *policy).returncode == 0
    ends("TidegateQuota")
    assert run("policy", "remove", lane.topic, "quota", *policy).returncode == 0

    away = folder.with_name("away")
    folder.rename(away)
    far += lane.send_in(*[MINUTES_10_MS] * 100)
    prometheus.wait_firing("TidegateIndexLogFailing", daemon)
    away.rename(folder)
    ends("TidegateIndexLogFailing")

    soon = lane.send_in(*[SOON_MS] * 500)
    due_s = time.monotonic() + SOON_MS / 1_000
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far + soon), "the daemon holds them, too")
    stand.daemon.kill()
    prometheus.wait_firing("TidegateDisconnected", broker)
    far += lane.send_in(*[MINUTES_10_MS] * 3 * PENDING_MAX)
    prometheus.wait_firing("TidegateReadingPaused", broker)
    time.sleep(max(0.0, due_s + LATE_S - time.monotonic()))
    assert len(inbox.arrivals) < len(soon), "the broker has only what was not durable"
    stand.daemon.start()
    prometheus.wait_firing("TidegateLateHandOut", broker)
    inbox.wait_for(soon)
    assert run("cancel", lane.topic, "sub", "--id", "1:1000000", "--socket", socket).returncode == 1
    every_panel_of_a_broker_has_data(prometheus)
    assert values_of_variable(prometheus, "daemon") == [daemon]
    assert values_of_variable(prometheus, "broker") == [broker]
    for name in OURS:
        ends(name)
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far), "the daemon holds the rest")
    assert_exactly(inbox.arrivals, soon)
    assert_not_early(inbox.arrivals)
