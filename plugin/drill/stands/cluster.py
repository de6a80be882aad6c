"""A cluster of this machine: ZooKeeper, a bookie, two brokers, and a daemon beside each.

Its daemons keep index logs in BookKeeper, as is typical, unless the tracker says otherwise.

Invariants: everything started here has ended when ``end`` returns; with a guard, even if this process is
killed. A process killed or paused by a fault gets no requests.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegate.plugin.drill.fault import FaultError, Need, Part, State
from tidegate.plugin.drill.stands.admin import StandAdmin
from tidegate.plugin.drill.stands.attached import AttachedHomes
from tidegate.plugin.drill.stands.daemons import DAEMON_SETTINGS, status_of, wait_for_broker
from tidegate.plugin.drill.stands.local_part import LocalPart, Together
from tidegate.plugin.drill.stands.standalone import NO_NEWER, counted_reads, home_for
from tidegate.plugin.drill.stands.trackers import broker_conf, is_ours
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.cluster import LocalCluster, Node
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.pulsar_process import Jvm

NAMESPACE = "public/drills"
# One bundle, so that the whole namespace moves together.
_BUNDLE = "0x00000000_0xffffffff"
_MOVE_TIMEOUT_S = 30.0
_MOVE_AGAIN_S = 5.0
_USABLE_TIMEOUT_S = 180.0
_POLL_S = 0.02


class ClusterStand:
    """Two brokers with ``tracker``; ``jar`` is the shim.

    ``newer_home``: a Pulsar to which its brokers can be upgraded, one by one. ``attached``: each broker has
    its own Pulsar home, attached as by ``tidegate attach``, instead of a conf file with our keys.
    """

    name = "cluster"
    token: str | None = None

    def __init__(
        self,
        tracker: str,
        pulsar_home: Path,
        jar: Path | None,
        work_dir: Path,
        socket_dir: Path,
        *,
        guard: Guard,
        pause: Callable[[float], None],
        newer_home: Path | None = None,
        attached: bool = False,
        heap_mib: int = 512,
        daemon_settings: Mapping[str, str] = DAEMON_SETTINGS,
    ) -> None:
        self.tracker = tracker
        self._own_home, self._newer_home = pulsar_home, newer_home
        self._pause = pause
        ours = is_ours(tracker)
        # The cluster itself names the sockets.
        conf = {
            key: value
            for key, value in broker_conf(tracker, socket_dir, several=True).items()
            if key != "tidegateSocket"
        }
        self.cluster = LocalCluster(
            pulsar_home,
            work_dir,
            socket_dir,
            jar=jar if ours else None,
            conf=conf,
            daemon_settings=daemon_settings,
            counters=True,
            jvm=Jvm(heap_mib=heap_mib),
            guard=guard,
            pause=pause,
        )
        self._ours = ours
        self._homes: AttachedHomes | None = None
        if attached and ours and jar is not None:
            self._homes = AttachedHomes(pulsar_home, work_dir, self.cluster.nodes, jar, pause)
        self._topic: str | None = None
        self._admin = StandAdmin(lambda: self._live()[0].broker.admin_url)

    @property
    def offers(self) -> frozenset[Need]:
        """The faults possible here."""
        offered = {
            Need.BROKER,
            Need.TWO_BROKERS,
            Need.MACHINES,
            Need.MOVE,
            Need.BOOKIE,
            Need.ADMIN,
        }
        if self._newer_home is not None:
            offered.add(Need.NEWER)
        if self._homes is not None:
            offered.add(Need.ATTACHED)
        return frozenset(offered | ({Need.DAEMON, Need.DATA} if self._ours else set()))

    @property
    def lacking(self) -> dict[Need, str]:
        """The reasons why others are not."""
        if self._ours:
            return NO_NEWER
        why = f"the tracker {self.tracker} has no daemon"
        return NO_NEWER | dict.fromkeys((Need.DAEMON, Need.DATA), why)

    def start(self) -> None:
        """Start everything, and make the namespace that moves."""
        if self._homes is not None:
            self._homes.make()
        self.cluster.start()
        bundles = {"bundles": {"numBundles": 1, "boundaries": None}}
        self._admin.must("PUT", f"/namespaces/{NAMESPACE}", bundles)

    def end(self) -> None:
        """End everything."""
        self.cluster.end()

    def part(self, name: str) -> Part:
        """``bookie``; ``broker``, ``daemon`` or ``machine`` (both), the owner's or as in ``broker-a``."""
        kind, _, letter = name.partition("-")
        if kind == "bookie":
            return LocalPart(self.cluster.bookie, self._pause)
        if letter:
            node = next((one for one in self.cluster.nodes if one.name == letter), None)
        else:
            node = self.owner(f"persistent://{NAMESPACE}/any")
        processes = {} if node is None else {"broker": node.broker, "daemon": node.daemon}
        if not self._ours:
            processes.pop("daemon", None)
        if kind == "machine" and processes:
            return Together(name, [LocalPart(one, self._pause) for one in processes.values()])
        if kind not in processes:
            raise FaultError(f"there is no {name} here, so nothing could be done to it")
        return LocalPart(processes[kind], self._pause, name)

    def data_dir(self) -> Path:
        """The data directory of the owner's daemon."""
        if not self._ours:
            raise FaultError(
                f"the tracker {self.tracker} has no data directory, so nothing could be done to it"
            )
        node = self.owner(f"persistent://{NAMESPACE}/any")
        if node is None:
            raise FaultError("nobody has the topic, so its data directory is not known")
        return node.daemon.data_dir

    def status(self) -> dict[str, Any] | None:
        """From the owner's daemon, over HTTP."""
        node = self.owner(f"persistent://{NAMESPACE}/any") if self._ours else None
        return None if node is None else status_of(node.daemon)

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Impossible on a cluster."""
        raise FaultError(f"the clock of the {name} cannot be set {ahead_s:+g} s here")

    def clock_ahead_s(self, name: str) -> float | None:  # noqa: ARG002
        """Unused here."""
        return None

    def fill_disk(self, *, full: bool) -> int:
        """Impossible on a cluster."""
        raise FaultError(f"the daemon's disk is no small one, and is not {'filled' if full else 'freed'}")

    def choose_pulsar(self, name: str, *, newer: bool) -> None:
        """The home of ``broker-a`` or ``broker-b`` for its next start."""
        broker = self._node(name).broker
        broker.pulsar_home = home_for(self._own_home, self._newer_home, newer=newer)

    def pulsar_version(self, name: str) -> str | None:
        """That broker's."""
        admin_url = self._node(name).broker.admin_url
        return StandAdmin(lambda: admin_url).version()

    def detach_all(self) -> str:
        """By the code of the command."""
        if self._homes is None:
            raise FaultError("the brokers here have no homes of their own, so they could not be detached")
        return self._homes.detach_all()

    def attach(self, name: str) -> str:
        """By the code of the command."""
        if self._homes is None:
            raise FaultError(f"the {name} has no home of its own, so it could not be attached")
        return self._homes.attach(self._node(name))

    def topic(self, drill: str, number: int) -> str:
        """A new one for each round, at the first broker; the previous round's is deleted."""
        if self._topic is not None:
            self._admin.delete(self._topic)
        self._topic = f"persistent://{NAMESPACE}/drill-{drill}-{number}"
        self.move_to_first(self._topic)
        return self._topic

    def move_to_first(self, topic: str) -> None:
        """Make the first broker own it."""
        first = self.cluster.nodes[0]
        if self.owner(topic) is not first:
            self._move_to(topic, first)

    def keep_messages(self) -> None:
        """Keep acknowledged messages, so that a cursor can be reset to them."""
        kept = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        self._admin.must("POST", f"/namespaces/{NAMESPACE}/retention", kept)

    def move(self, topic: str) -> str:
        """Make the other broker own it."""
        owner = self.owner(topic)
        others = [node for node in self._live() if node is not owner]
        if owner is None or not others:
            raise FaultError(f"no other broker was found to move {topic} to")
        self._move_to(topic, others[0])
        return f"moved from {owner.name} to {others[0].name}"

    def rewind(self, topic: str, subscription: str) -> None:
        """By the admin interface."""
        self._admin.rewind(topic, subscription)

    def client_url(self, topic: str) -> str:
        """All brokers that answer, once one of them has the topic."""
        if self.owner(topic) is None:
            raise UserError(f"no broker that answers has {topic}")
        return "pulsar://" + ",".join(one.broker.service_url.partition("://")[2] for one in self._live())

    def wait_usable(self, topic: str) -> None:
        """Return when a broker that answers has the topic, and, if attached, is connected to its daemon."""
        deadline_s = time.monotonic() + _USABLE_TIMEOUT_S
        while (owner := self.owner(topic)) is None:
            if time.monotonic() > deadline_s:
                raise UserError(f"no broker had {topic} within {_USABLE_TIMEOUT_S:.0f} s")
            self._pause(_POLL_S)
        if self._ours and (self._homes is None or self._homes.attached(owner)):
            wait_for_broker(owner.daemon, self._pause)

    def delayed(self, topic: str, subscription: str) -> int | None:
        """The owner's count."""
        return self._admin.delayed(topic, subscription)

    def release(self, topic: str, subscription: str) -> None:
        """The topic is deleted with the next round, or with the cluster."""

    def entries_read(self, topic: str) -> dict[str, int] | None:
        """The count of each running broker."""
        counts: dict[str, int] = {}
        for node in self._live():
            if node.counters_port is not None:
                admin_url = node.broker.admin_url
                run = f"{node.name}, pid {node.broker.pid}"
                counts |= counted_reads(run, node.counters_port, admin_url, topic)
        return counts

    def owner(self, topic: str) -> Node | None:
        """The topic's owner, if that broker runs."""
        url = self._admin.owner(topic)
        return next((node for node in self._live() if node.broker.service_url == url), None)

    # Inside

    def _node(self, name: str) -> Node:
        kind, _, letter = name.partition("-")
        node = next((one for one in self.cluster.nodes if one.name == letter), None)
        if kind != "broker" or node is None:
            raise FaultError(f"the {name} is none of the cluster's brokers")
        return node

    def _live(self) -> list[Node]:
        """The nodes whose broker runs."""
        live = [
            node
            for node in self.cluster.nodes
            if LocalPart(node.broker, self._pause).state() is State.RUNNING
        ]
        if not live:
            raise UserError("no broker of the cluster runs")
        return live

    def _move_to(self, topic: str, node: Node) -> None:
        # Ask the new owner: it knows itself.
        asked = StandAdmin(lambda: node.broker.admin_url)
        unload = f"/namespaces/{NAMESPACE}/{_BUNDLE}/unload?destinationBroker={node.broker.broker_id}"
        begun_s = time.monotonic()
        for turn in range(math.ceil(_MOVE_TIMEOUT_S / _MOVE_AGAIN_S)):
            # A client that looks the topic up at that moment can move it elsewhere.
            asked.must("PUT", unload)
            while time.monotonic() - begun_s < (turn + 1) * _MOVE_AGAIN_S:
                if asked.owner(topic) == node.broker.service_url:
                    return
                self._pause(_POLL_S)
        raise FaultError(f"{topic} did not move to broker {node.name}")
