"""One real broker and one Spark session for all of these tests."""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.class_archives import spark_java
from tests.support.cluster import Cluster, MissingPartError, TrackerKind, check_parts
from tests.support.lane import Lane
from tidegate.pipeline.job.session import tolerant
from tidegate.pipeline.source.backlog import register
from tidegate.pipeline.topic.cluster import Cluster as PulsarCluster
from tidegate.pipeline.topic.cluster import ReadFrom

_BROKER = {"cluster", "lane", "make_lane", "pulsar"}
_names = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the broker."""
    for item in items:
        if "tests/pipeline/" in item.nodeid and _BROKER & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A daemon and a broker."""
    try:
        check_parts(TrackerKind.TIDEGATE)
    except MissingPartError as error:
        pytest.fail(str(error), pytrace=False)
    # A socket's path may have about 100 bytes; pytest's own directories can be longer.
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = Cluster(
            TrackerKind.TIDEGATE, tmp_path_factory.mktemp("pipeline"), Path(short) / "daemon.sock"
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture
def make_lane(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Callable[..., Lane]]:
    """Makes topics of this test; closed at its end."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    lanes: list[Lane] = []

    def make(**options: str) -> Lane:
        lanes.append(Lane(cluster, f"{name}-{next(_names)}", **options))
        return lanes[-1]

    try:
        yield make
    finally:
        for one in lanes:
            one.close()


@pytest.fixture
def lane(make_lane: Callable[..., Lane]) -> Lane:
    """The topic of this test."""
    return make_lane()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on this machine, as small and as fast to start as it gets."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": spark_java(),
    }
    builder = SparkSession.builder.master(tolerant("local[2]")).appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def pulsar(cluster: Cluster) -> PulsarCluster:
    """Where the broker is, as the pipeline is told; reads straight from the bookie."""
    return PulsarCluster(cluster.broker.service_url, cluster.broker.admin_url, read_from=ReadFrom.BOOKIES)
