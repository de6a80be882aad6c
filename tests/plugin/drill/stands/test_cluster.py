"""A cluster of this machine: the home from which each of its brokers starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.plugin.drill.fault import FaultError, Need
from tidegate.plugin.drill.stands.cluster import ClusterStand
from tidegate.plugin.drill.stands.trackers import OURS
from tidegate.plugin.local.guard import Guard


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


def _stand(tmp_path: Path, guard: Guard, newer_home: Path | None) -> ClusterStand:
    return ClusterStand(
        OURS,
        tmp_path / "pulsar",
        tmp_path / "shim.jar",
        tmp_path / "work",
        tmp_path,
        guard=guard,
        pause=lambda _: None,
        newer_home=newer_home,
    )


def test_each_broker_goes_to_the_newer_pulsar_and_back_by_itself(tmp_path: Path, guard: Guard) -> None:
    own, newer = tmp_path / "pulsar", tmp_path / "newer"
    stand = _stand(tmp_path, guard, newer)
    a, b = (node.broker for node in stand.cluster.nodes)
    assert Need.NEWER in stand.offers
    stand.choose_pulsar("broker-b", newer=True)
    assert (a.pulsar_home, b.pulsar_home) == (own, newer)
    stand.choose_pulsar("broker-a", newer=True)
    stand.choose_pulsar("broker-b", newer=False)
    assert (a.pulsar_home, b.pulsar_home) == (newer, own)
    assert stand.pulsar_version("broker-a") is None, "it does not run"


@pytest.mark.parametrize("name", ["broker", "broker-c", "daemon-a", "bookie"])
def test_nothing_else_is_taken_for_a_broker(tmp_path: Path, guard: Guard, name: str) -> None:
    stand = _stand(tmp_path, guard, tmp_path / "newer")
    with pytest.raises(FaultError, match=f"the {name} is none of the cluster's brokers"):
        stand.choose_pulsar(name, newer=True)


def test_without_a_newer_pulsar_the_advice_is_given(tmp_path: Path, guard: Guard) -> None:
    stand = _stand(tmp_path, guard, None)
    assert Need.NEWER not in stand.offers
    assert "tidegate setup --pulsar" in stand.lacking[Need.NEWER]
    with pytest.raises(FaultError, match="tidegate setup --pulsar"):
        stand.choose_pulsar("broker-a", newer=True)
