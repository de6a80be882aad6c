"""The module's cluster, and a topic of it for each test."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import MissingPartError, TrackerKind, check_parts
from tests.support.lane import Lane
from tests.support.oxia import Oxia
from tests.support.two_brokers import MOVING, TwoBrokers

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.broker)


@pytest.fixture(scope="module")
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    """ZooKeeper, a bookie, two brokers and two daemons.

    A module may set the index logs' home (``INDEX_LOG``), the settings of daemons (``DAEMON_SETTINGS``),
    brokers (``CONF``) and bookie (``BOOKIE_CONF``), and a program in place of ``tidegate``
    (``DAEMON_PROGRAM``). With ``ON_OXIA`` the metadata are there from the beginning.
    """
    try:
        check_parts(TrackerKind.TIDEGATE)
    except MissingPartError as error:
        pytest.fail(str(error), pytrace=False)
    on_oxia = getattr(request.module, "ON_OXIA", False)
    metadata_url = request.getfixturevalue("oxia").url if on_oxia else None
    # A socket's path may have about 100 bytes; pytest's own directories can be longer.
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        started = TwoBrokers(
            tmp_path_factory.mktemp("cluster"),
            Path(short),
            index_log=request.module.INDEX_LOG,
            daemon_settings=getattr(request.module, "DAEMON_SETTINGS", None),
            daemon_program=getattr(request.module, "DAEMON_PROGRAM", None),
            broker_conf=getattr(request.module, "CONF", None),
            bookie_conf=getattr(request.module, "BOOKIE_CONF", None),
            metadata_url=metadata_url,
        )
        try:
            started.start()
            yield started
        finally:
            started.end()


@pytest.fixture(scope="module")
def oxia(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oxia]:
    """The module's Oxia."""
    with Oxia(tmp_path_factory.mktemp("oxia")) as started:
        yield started


@pytest.fixture
def lane(two: TwoBrokers, request: pytest.FixtureRequest) -> Iterator[Lane]:
    """The topic of this test; it keeps what was acknowledged."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    made = Lane(two, name, namespace=MOVING)
    try:
        yield made
    finally:
        made.close()
