"""Rebuild and verify of a topic of which BookKeeper has lost a ledger: an error that says so, or the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipeline.rebuild.test_rebuild import HOUR_MS, Unstarted, held, job, kinds
from tests.support.cluster import Cluster
from tests.support.lane import Lane
from tests.support.lost_ledgers import lose_ledger
from tidegate.pipeline.errors import UnreachableError
from tidegate.pipeline.rebuild import job as rebuild
from tidegate.pipeline.rebuild import verify
from tidegate.pipeline.topic import broker
from tidegate.pipeline.topic.cluster import ReadFrom

SKIP = "autoSkipNonRecoverableData"


@pytest.fixture
def skipping(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Has the broker pass over what is lost, from then on to the end of the test."""
    yield lambda: cluster.admin.set_dynamic(SKIP, "true")
    cluster.repair()
    cluster.admin.set_dynamic(SKIP, "false")
    cluster.admin.unset_dynamic(SKIP)


def test_a_lost_ledger(
    cluster: Cluster,
    lane: Lane,
    tmp_path: Path,
    skipping: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane.reserve()
    for _ in range(3):
        lane.send_in(*[HOUR_MS + number for number in range(20)])
        lane.admin.unload(lane.topic)
    lost = lane.admin.internal_stats(lane.topic)["ledgers"][1]
    assert lost["entries"] == 20
    cluster.broker.stop()
    lane.disconnect()
    lose_ledger(cluster.broker.metadata_dir, lost["ledgerId"])
    cluster.start_broker()

    unknown = rf"where ledger {lost['ledgerId']} is stored is not known.*read through the broker"
    for module in (rebuild, verify):
        with pytest.raises(UnreachableError, match=unknown):
            job(module, Unstarted(), cluster, lane, tmp_path / "bookies", read_from=ReadFrom.BOOKIES)
    # How long a silence is does not matter: this one never ends.
    monkeypatch.setattr(broker, "TIMEOUT_S", 5.0)
    with pytest.raises(UnreachableError, match=rf"sends no more messages of .*{SKIP} is set to true"):
        job(rebuild, Unstarted(), cluster, lane, tmp_path / "work", read_from=ReadFrom.BROKER)
    assert len(held(cluster, lane)) == 0

    monkeypatch.undo()
    skipping()
    result, code = job(rebuild, Unstarted(), cluster, lane, tmp_path / "work", read_from=ReadFrom.AUTO)
    assert (code, result["entries"], result["matched"]) == (0, 40, True)
    assert len(held(cluster, lane)) == 40
    found, code = job(verify, Unstarted(), cluster, lane, tmp_path / "verified", read_from=ReadFrom.BROKER)
    assert (code, found["checked"], kinds(found)) == (0, 40, (0, 0, 0, 0))
