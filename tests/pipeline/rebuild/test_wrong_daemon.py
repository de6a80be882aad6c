"""The daemon of another cluster, or of another broker, is noticed before anything is written or told."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import Cluster, TrackerKind
from tests.support.inbox import Inbox
from tests.support.lane import Lane
from tests.support.pipeline.commands import Notes, tidegate
from tests.support.waiting import wait_until
from tidegate.index import SubscriptionName
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.rebuild import job as rebuild
from tidegate.pipeline.rebuild import verify
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.rebuild.serving import Serving, judged_by_name, judged_by_seal
from tidegate.plugin.wire.session import DaemonSession

HOUR_MS = 3_600_000
BOTH = pytest.mark.parametrize("module", [rebuild, verify])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another cluster, whose broker has a name of the user's choosing."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(TrackerKind.TIDEGATE, tmp_path_factory.mktemp("other"), Path(short) / "daemon.sock")
        started.broker.configure({"tidegateBrokerName": "green"})
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture
def same(other: Cluster, lane: Lane) -> Iterator[Lane]:
    """The topic of that name in the other cluster."""
    theirs = Lane(other, "same")
    theirs.topic = lane.topic
    try:
        yield theirs
    finally:
        theirs.close()


def job(
    module: Any, lane: Lane, cluster: Cluster, work: Path, **more: Any
) -> tuple[dict[str, Any], int, list[str]]:
    """The effect of a command on the topic of a lane, with a cluster's daemon; and its output."""
    options = RebuildOptions(
        topic=f"persistent://{lane.topic}", subscription="sub", admin_url=lane.admin.base_url,
        socket=str(cluster.daemon.socket_path), work=str(work),
    ).model_copy(update=more)  # fmt: skip
    notes = Notes(None, spark_is_up=False)  # type: ignore[arg-type]
    found: tuple[dict[str, Any], int] = module.run(notes, options.model_dump(mode="json"))
    return *found, notes.told


def name_of(lane: Lane, subscription: str = "sub") -> SubscriptionName:
    return SubscriptionName(f"persistent://{lane.topic}", subscription)


def is_known(cluster: Cluster, lane: Lane) -> bool:
    with DaemonSession(cluster.daemon.socket_path) as session:
        return bool(session.about(name_of(lane))["known"])


def attach(cluster: Cluster, lane: Lane, messages: int) -> None:
    """Have an index of the topic at the cluster's daemon, told by its broker."""
    lane.subscribe(Inbox())
    lane.send_in(*[HOUR_MS + number for number in range(messages)])
    wait_until(lambda: cluster.held(lane.topic).get("sub") == messages, "all of it is held")


def test_a_daemon_that_its_broker_is_not_connected_to(
    cluster: Cluster, other: Cluster, same: Lane, tmp_path: Path
) -> None:
    same.reserve()
    same.send_in(*[HOUR_MS] * 20)
    at = other.service_url.removeprefix("pulsar://")
    done = tidegate(
        "rebuild", f"persistent://{same.topic}", "sub", "--admin-url", same.admin.base_url,
        "--socket", cluster.daemon.socket_path, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    *_, line = done.stderr.splitlines()
    assert line.startswith(f"tidegate: the broker of persistent://{same.topic}, {at}, is not connected to")
    assert "--any-daemon" in line
    assert not is_known(cluster, same), "nothing has come to be there"
    assert not list(tmp_path.iterdir())
    found, code, _ = job(rebuild, same, cluster, tmp_path / "work", any_daemon=True)
    assert (code, found["entries"]) == (0, 20)


@BOTH
def test_of_a_pattern_too(cluster: Cluster, same: Lane, tmp_path: Path, module: Any) -> None:
    same.reserve("one", "two")
    for wanted in ({"subscription": "*"}, {"topic": f"persistent://{same.topic}*", "subscription": "*"}):
        with pytest.raises(PipelineError, match="is not connected to the daemon"):
            job(module, same, cluster, tmp_path / "work", **wanted)
    assert not list(tmp_path.iterdir())


@BOTH
def test_an_index_of_the_same_name_of_another_cluster(
    cluster: Cluster, other: Cluster, lane: Lane, same: Lane, tmp_path: Path, module: Any
) -> None:
    """Where no name tells it, the cursors do."""
    attach(cluster, lane, 30)
    attach(other, same, 10)
    why = rf"has an index of .*{re.escape(lane.topic)}:sub, but of another cluster"
    with pytest.raises(PipelineError, match=why):
        job(module, lane, other, tmp_path / "work")
    assert not list(tmp_path.iterdir())
    assert other.held(lane.topic) == {"sub": 10}
    for mine, at in ((lane, cluster), (same, other)):
        found, code, told = job(module, mine, at, tmp_path / "work")
        assert (code, [one for one in told if "connected" in one]) == (0, [])
        assert found["subscriptions"][0]["subscription"] == "sub"


def test_a_broker_with_a_name_of_its_own_is_believed(other: Cluster, same: Lane, tmp_path: Path) -> None:
    """The first attach: no index, no consumer, and no name to go by."""
    same.reserve()
    same.send_in(*[HOUR_MS] * 20)
    found, code, _ = job(rebuild, same, other, tmp_path / "work")
    assert (code, found["added"]) == (0, 20)


def test_a_daemon_without_a_broker_is_told_of(cluster: Cluster, lane: Lane, tmp_path: Path) -> None:
    """As before the broker is started again with the shim."""
    lane.reserve()
    lane.send_in(*[HOUR_MS] * 20)
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        alone = Cluster(TrackerKind.TIDEGATE, tmp_path / "alone", Path(short) / "daemon.sock")
        try:
            alone.daemon.start()
            found, code, told = job(rebuild, lane, alone, tmp_path / "work")
            assert (code, found["added"]) == (0, 20)
            assert sum("no broker is connected to the daemon" in one for one in told) == 1
        finally:
            alone.end()


@pytest.mark.parametrize(
    ("daemons", "cursors", "said"),
    [(0, 0, Serving.UNKNOWN), (0, 7, Serving.UNKNOWN), (7, 0, Serving.UNKNOWN), (7, 7, Serving.YES),
     (7, 8, Serving.NO)],
)  # fmt: skip
def test_what_seals_say(daemons: int, cursors: int, said: Serving) -> None:
    assert judged_by_seal(daemons, cursors) is said


@pytest.mark.parametrize(
    ("connected", "owner", "said"),
    [
        (["a:6650"], {"a:6650"}, Serving.YES),
        (["a:6650", "b:6650"], {"b:6650", "b:6651"}, Serving.YES),
        (["a:6650"], {"b:6650"}, Serving.NO),
        (["[::1]:6650"], {"b:6650"}, Serving.NO),
        (["a:6650", "green"], {"b:6650"}, Serving.UNKNOWN),
        (["a:6650"], set(), Serving.UNKNOWN),
    ],
)
def test_what_names_say(connected: list[str], owner: set[str], said: Serving) -> None:
    assert judged_by_name(connected, owner) is said
