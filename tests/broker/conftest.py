"""The session's broker and a topic for each test."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import SUBSCRIBED, Cluster, MissingPartError, TrackerKind, check_parts
from tests.support.inbox import Inbox
from tests.support.lane import MINUTES_10_MS, Expiring, Lane
from tests.support.threads import last_lines, threads

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark everything here; with Pulsar's own trackers leave out what is about the daemon or strict time."""
    mine = [item for item in items if HERE in item.path.parents]
    for item in mine:
        item.add_marker(pytest.mark.broker)
    if TrackerKind.chosen() is not TrackerKind.TIDEGATE:
        left_out = {item for item in mine if item.get_closest_marker("tidegate_only")}
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Whoever reads why a test failed, later and elsewhere, has neither the broker nor its log."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        broker = cluster.broker
        report.sections.append(("the broker's log", last_lines(broker.log_path)))
        if broker.running:
            report.sections.append(("the broker's threads", threads(broker.pid)))
    return report


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The daemon and the broker of this session."""
    kind = TrackerKind.chosen()
    try:
        check_parts(kind)
    except MissingPartError as error:
        pytest.fail(str(error), pytrace=False)
    # A socket's path may have about 100 bytes; pytest's own directories can be longer.
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(kind, tmp_path_factory.mktemp("cluster"), Path(short) / "daemon.sock")
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture(scope="session", autouse=True)
def expiring(cluster: Cluster) -> Iterator[Expiring]:
    """Messages that the broker expires: it looks but once a minute, so they are sent before anything else."""
    namespace = "public/expiring"
    cluster.admin.create_namespace(namespace)
    cluster.admin.set_message_ttl(namespace, 1)
    lane = Lane(cluster, "expiring", namespace=namespace)
    inbox = Inbox()
    lane.subscribe(inbox)
    lane.send_in(*[MINUTES_10_MS] * 50)
    yield Expiring(lane, inbox)
    lane.disconnect()


@pytest.fixture
def make_lane(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lane]]:
    """Makes further topics of this test; closed at its end."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    lanes: list[Lane] = []

    def make(namespace: str = SUBSCRIBED) -> Lane:
        lanes.append(Lane(cluster, name, namespace=namespace))
        return lanes[-1]

    try:
        yield make
    finally:
        for lane in lanes:
            lane.close()


@pytest.fixture
def lane(make_lane: Callable[..., Lane]) -> Lane:
    """The topic of this test, in a namespace that keeps nothing that all have acknowledged."""
    return make_lane()


@pytest.fixture
def repaired(cluster: Cluster) -> Iterator[None]:
    """For a test that stops the broker or the daemon: both run again after it."""
    yield
    cluster.repair()
