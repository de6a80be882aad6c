"""One broker by itself keeps its index logs in a folder; what its daemon loses comes back from there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.cluster import Cluster, TrackerKind
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Lane
from tests.support.waiting import wait_until
from tidegate.plugin.wire.client import ask_socket

pytestmark = pytest.mark.tidegate_only
READ_AHEAD = 300  # what the dispatcher reads before the daemon has answered


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index-logs")


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Cluster]:
    """A broker and a daemon beside those of the session."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(
            TrackerKind.TIDEGATE,
            tmp_path_factory.mktemp("file-home"),
            Path(short) / "daemon.sock",
            index_log=f"file://{folder}",
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture
def lane(stand: Cluster, request: pytest.FixtureRequest) -> Iterator[Lane]:
    made = Lane(stand, request.node.name.replace("_", "-"))
    try:
        yield made
    finally:
        made.close()


def counted(stand: Cluster, name: str) -> float:
    text = httpx.get(f"{stand.daemon.url}/metrics", timeout=5.0, trust_env=False).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def wait_logged(stand: Cluster, lane: Lane, held: int) -> None:
    def logged() -> bool:
        status = ask_socket(stand.daemon.socket_path, {"what": "status"})
        found = [each for each in status["subscriptions"] if each["topic"] == f"persistent://{lane.topic}"]
        if [each["held"] for each in found] != [held]:
            return False
        log = found[0]["index_log"]
        return bool(log) and log["ledger_id"] is not None and not log["lag_seconds"]

    wait_until(logged, "the index log is up to date")


def look_for_orphans(
    stand: Cluster, lane: Lane, folder: Path, *more: str
) -> tuple[int, list[dict[str, str]]]:
    command = [sys.executable, "-m", "tidegate.plugin.cli", "verify", f"persistent://{lane.topic}*", "*"]
    where = ["--logs", "--admin-url", stand.broker.admin_url, "--index-log", f"file://{folder}"]
    where += ["--socket", str(stand.daemon.socket_path)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    done = subprocess.run(
        [*command, *where, "--json", *more], capture_output=True, text=True, check=False, env=clean
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.returncode, json.loads(done.stdout)["orphans"]


def test_a_daemon_that_lost_its_data_gets_it_from_the_folder(lane: Lane, stand: Cluster) -> None:
    inbox = Inbox()
    lane.subscribe(inbox)
    far, done = lane.send_in(*[MINUTES_10_MS] * 5_000), lane.send_in(*[300] * 100)
    inbox.wait_for(done)
    due = lane.send_in(*[20_000] * 100)
    wait_logged(stand, lane, len(far) + len(due))
    stand.daemon.kill()
    shutil.rmtree(stand.daemon.data_dir)
    stand.daemon.start()
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far) + len(due), "it holds them again")
    assert counted(stand, "tidegate_index_log_restored_total") >= 1
    assert counted(stand, "tidegate_entries_added_total") <= READ_AHEAD, "nothing is read again"
    assert "the index was restored from its log" in stand.daemon.log_path.read_text(encoding="utf-8")
    lane.finish_partly(inbox, done + due, left=len(far))


def test_a_rule_switches_an_index_log_off_and_on(lane: Lane, stand: Cluster, folder: Path) -> None:
    """The log of before lacks later messages: a daemon that has nothing else reads the topic."""

    def rule(value: str) -> None:
        command = [
            sys.executable,
            "-m",
            "tidegate.plugin.cli",
            "policy",
            "set",
            lane.topic,
            "index_log",
            value,
        ]
        subprocess.run([*command, "--admin-url", stand.broker.admin_url], check=True, capture_output=True)
        lane.admin.unload(lane.topic)

    def log() -> object:
        status = ask_socket(stand.daemon.socket_path, {"what": "status"})
        found = [each for each in status["subscriptions"] if each["topic"] == f"persistent://{lane.topic}"]
        return found[0]["index_log"] if found and found[0]["broker"] else "not open"

    inbox = Inbox()
    lane.subscribe(inbox)
    far = lane.send_in(*[MINUTES_10_MS] * 1_000)
    wait_logged(stand, lane, len(far))
    rule("off")
    wait_until(lambda: log() is None, "it has no index log any more")
    done = lane.send_in(*[300] * 100)
    inbox.wait_for(done)
    far += lane.send_in(*[MINUTES_10_MS] * 1_000)
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far), "the daemon holds all")
    stand.daemon.kill()
    shutil.rmtree(stand.daemon.data_dir)
    stand.daemon.start()
    wait_until(lambda: stand.held(lane.topic).get("sub") == len(far), "it holds them again")
    assert log() is None
    rule("on")
    wait_logged(stand, lane, len(far))
    lane.finish_partly(inbox, done, left=len(far))


def test_what_nobody_needs_is_found_and_deleted(
    lane: Lane, stand: Cluster, folder: Path, tmp_path: Path
) -> None:
    """Left by a broker that was killed while it made a ledger, and by a daemon that missed a deletion."""
    before = set(folder.iterdir())
    lane.subscribe(Inbox())
    far = lane.send_in(*[MINUTES_10_MS] * 100)
    wait_logged(stand, lane, len(far))
    (life,) = set(folder.iterdir()) - before
    (ledger,) = life.iterdir()
    kept = tmp_path / life.name
    shutil.copytree(life, kept)
    shutil.copytree(ledger, life / f"{int(ledger.name) + 1:020}")
    exit_code, found = look_for_orphans(stand, lane, folder)
    assert (exit_code, len(found)) == (1, 1), found
    (orphan,) = found
    assert (orphan["topic"], orphan["subscription"]) == (f"persistent://{lane.topic}", "sub")
    assert int(orphan["ledger_id"]) == int(ledger.name) + 1

    lane.disconnect()
    lane.admin.delete_subscription(lane.topic, "sub")
    wait_until(lambda: not life.exists(), "its log is deleted with the subscription")
    shutil.copytree(kept, life)
    assert len(look_for_orphans(stand, lane, folder, "--repair")[1]) == 1
    assert not life.exists()
