"""Choosing the kind of stand that a drill needs, and making one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path

from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.stands.base import RunningStand
from tidegate.plugin.drill.stands.cluster import ClusterStand
from tidegate.plugin.drill.stands.standalone import Standalone
from tidegate.plugin.drill.stands.trackers import NO_INDEX_LOG, is_ours
from tidegate.plugin.local.guard import Guard

_OF_DAEMONS = frozenset({Need.DAEMON, Need.DATA, Need.DISK, Need.PREVIOUS, Need.ATTACHED})


class Kind(StrEnum):
    """A kind of stand, in words."""

    STANDALONE = "broker"
    CLUSTER = "cluster of two brokers"
    ATTACHED = "cluster of two attached brokers"
    CLOCKS = "broker whose clock can be set"
    SMALL_DISK = "broker beside a daemon with a small disk"


def kind_for(needs: Collection[Need]) -> Kind:
    """The smallest kind that meets the needs."""
    if Need.ATTACHED in needs:
        return Kind.ATTACHED
    if {Need.TWO_BROKERS, Need.MACHINES, Need.MOVE, Need.BOOKIE}.intersection(needs):
        return Kind.CLUSTER
    if Need.CLOCK in needs:
        return Kind.CLOCKS
    return Kind.SMALL_DISK if Need.DISK in needs else Kind.STANDALONE


def can_run(needs: Collection[Need], tracker: str) -> bool:
    """True if a tracker to compare with has the part that the drill attacks.

    Pulsar's own have no daemon; without an index log ours differs on a cluster only.
    """
    if tracker == NO_INDEX_LOG:
        return kind_for(needs) is Kind.CLUSTER
    return is_ours(tracker) or not _OF_DAEMONS.intersection(needs)


def make_stand(
    kind: Kind,
    tracker: str,
    *,
    pulsar_home: Path,
    newer_home: Path | None,
    jar: Path | None,
    work_dir: Path,
    socket_dir: Path,
    guard: Guard,
    pause: Callable[[float], None],
) -> RunningStand:
    """Make a stand of that kind, not yet started."""
    if kind in {Kind.CLUSTER, Kind.ATTACHED}:
        return ClusterStand(
            tracker,
            pulsar_home,
            jar,
            work_dir,
            socket_dir,
            guard=guard,
            pause=pause,
            newer_home=newer_home,
            attached=kind is Kind.ATTACHED,
        )
    socket_path = socket_dir / "tidegate.sock"
    return Standalone(
        tracker,
        pulsar_home,
        jar,
        work_dir,
        socket_path,
        guard=guard,
        pause=pause,
        newer_home=newer_home,
        clocks=kind is Kind.CLOCKS,
        small_disk=kind is Kind.SMALL_DISK,
    )
