"""Pulsar returns to an earlier state, as by a restored backup, beside an index that went on.

New ledgers reuse the ids of those made since the backup, for other messages: by the index's word such a
message would wait as long as another one, or be deleted.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, TrackerKind
from tests.support.inbox import Arrival, Inbox, Verdict
from tests.support.lane import LATER_MS, MINUTES_10_MS, Lane
from tests.support.waiting import wait_until

pytestmark = pytest.mark.tidegate_only
MESSAGES = 100


@pytest.fixture(autouse=True)
def expiring() -> None:
    """Nothing of the session's broker is needed here."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker and a daemon beside those of the session."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(
            TrackerKind.TIDEGATE, tmp_path_factory.mktemp("put-back"), Path(short) / "daemon.sock"
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


def copy_pulsar(source: Path, target: Path) -> None:
    for name in ("metadata", "bookkeeper"):
        shutil.rmtree(target / name, ignore_errors=True)
        shutil.copytree(source / name, target / name)


def go_on(stand: Cluster, lane: Lane, *, acknowledge_first: bool) -> None:
    """Changes after the backup, which its return undoes."""
    inbox = Inbox()
    seen: list[Arrival] = []

    def judge(arrival: Arrival) -> Verdict:
        seen.append(arrival)
        return Verdict.ACK if acknowledge_first or len(seen) > 1 else Verdict.KEEP

    lane.subscribe(inbox, judge)
    soon, later = lane.send_in(*[1_000] * MESSAGES), lane.send_in(*[MINUTES_10_MS] * MESSAGES)
    inbox.wait_for(soon)
    left = len(later) + (not acknowledge_first)
    known = 0 if acknowledge_first else MESSAGES - 1
    wait_until(
        lambda: stand.held(lane.topic) == {"sub": left} and stand.acknowledged(lane.topic) == {"sub": known},
        "the index knows what was acknowledged, and mark-delete has moved if it could",
    )
    lane.disconnect()


@pytest.mark.parametrize("acknowledge_first", [True, False], ids=["mark-delete moved", "it did not"])
def test_pulsar_is_put_back(stand: Cluster, tmp_path: Path, *, acknowledge_first: bool) -> None:
    """Nothing is set aside: the claims in the cursor show it, whatever was acknowledged since."""
    lane = Lane(stand, "put-back")
    base = Inbox()
    lane.subscribe(base)
    lane.finish(base, lane.send_in(*[500] * 5))
    lane.disconnect()
    stand.broker.stop()
    pulsar_dir, backup = stand.broker.work_dir, tmp_path / "backup"
    copy_pulsar(pulsar_dir, backup)
    stand.start_broker()
    go_on(stand, lane, acknowledge_first=acknowledge_first)

    stand.broker.stop()
    copy_pulsar(backup, pulsar_dir)
    stand.start_broker()
    sent = lane.send_in(*[LATER_MS] * (3 * MESSAGES))
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.finish(inbox, sent)
    told = [
        line for line in stand.daemon.log_path.read_text(encoding="utf-8").splitlines() if lane.topic in line
    ]
    assert any("Pulsar was put back" in line and "another owner has the epoch" in line for line in told)
    lane.close()
