"""The stand that a drill needs, and the drills that a tracker can do."""

from __future__ import annotations

import itertools

from tidegate.plugin.drill.catalogue import DRILLS, named
from tidegate.plugin.drill.stands.making import Kind, can_run, kind_for


def test_a_drill_gets_the_smallest_stand_that_will_do() -> None:
    assert kind_for(named("broker-killed").needs) is Kind.STANDALONE
    assert kind_for(named("bundle-moved").needs) is Kind.CLUSTER
    assert kind_for(named("cluster-detached").needs) is Kind.ATTACHED
    assert kind_for(named("bookie-slow").needs) is Kind.CLUSTER
    assert kind_for(named("broker-clock-stepped").needs) is Kind.CLOCKS
    assert kind_for(named("disk-full").needs) is Kind.SMALL_DISK


def test_drills_of_one_stand_stand_together() -> None:
    """Otherwise a run of all would start stands again and again."""
    kinds = [kind_for(drill.needs) for drill in DRILLS]
    changes = sum(before is not after for before, after in itertools.pairwise(kinds))
    assert changes == len(set(kinds)) - 1


def test_a_compared_tracker_is_left_out_of_what_it_has_not() -> None:
    def left_out(tracker: str) -> set[str]:
        return {drill.name for drill in DRILLS if not can_run(drill.needs, tracker)}

    assert left_out("tidegate") == set()
    assert left_out("bucket") == left_out("in-memory") == {
        "daemon-killed", "both-killed", "daemon-paused", "data-directory-lost", "block-corrupted", "upgrade",
        "disk-full", "daemon-clock-ahead", "daemon-clock-behind", "cluster-detached",
    }  # fmt: skip
    assert {"broker-killed", "burst"} <= left_out("no-index-log")
    assert left_out("no-index-log").isdisjoint({"machine-lost", "bundle-moved", "seek-while-moving"})
