"""A Pulsar home for each broker of a cluster of this machine, attached and detached by the commands' code.

Invariant: the distribution is only read; the homes are below the cluster's directory, and link to its jars.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.attach.broker_keys import (
    BOOKKEEPER_LOG,
    INDEX_LOG_KEY,
    SOCKET_KEY,
    TRACKER_KEY,
    Wanted,
)
from tidegate.plugin.attach.plan import carry_out, plan_attach, plan_detach
from tidegate.plugin.attach.way_back import ClusterAdmin, State, WayBack
from tidegate.plugin.drill.fault import FaultError
from tidegate.plugin.local.cluster import Node
from tidegate.plugin.shared.rest import RestClient


class AttachedHomes:
    """The homes of ``nodes``; as ``Machines`` it restarts their brokers. jar: the shim."""

    def __init__(
        self,
        distribution: Path,
        work_dir: Path,
        nodes: Sequence[Node],
        jar: Path,
        pause: Callable[[float], None],
    ) -> None:
        self._distribution = distribution
        self._nodes = {node.broker.broker_id: node for node in nodes}
        self._homes = {name: work_dir / f"pulsar-{node.name}" for name, node in self._nodes.items()}
        self._jar = jar
        self._pause = pause

    def make(self) -> None:
        """Make the homes, attach them, and have the brokers start from them."""
        for name, node in self._nodes.items():
            home = self._homes[name]
            home.mkdir(parents=True)
            # The start script follows links to find its home.
            for folder in ("bin", "conf"):
                shutil.copytree(self._distribution / folder, home / folder)
            (home / "lib").mkdir()
            for jar in (self._distribution / "lib").iterdir():
                (home / "lib" / jar.name).symlink_to(jar.resolve())
            self._attach(name)
            node.broker.start_from(home, without=(TRACKER_KEY, SOCKET_KEY, INDEX_LOG_KEY))

    def attached(self, node: Node) -> bool:
        """True if the node's home is attached."""
        return inspect(self._homes[node.broker.broker_id]).attached

    def attach(self, node: Node) -> str:
        """Attach the node's home and restart its broker; returns the evidence."""
        name = node.broker.broker_id
        self._attach(name)
        self.restart(name)
        now = self._admin(name).look(name)
        if now.state is not State.TIDEGATE:
            raise FaultError(f"the broker {node.name} was attached and runs {now.tracker}")
        return f"the broker {node.name} runs {now.tracker}"

    def detach_all(self) -> str:
        """The way back of ``tidegate detach-all``; returns the evidence."""
        way = WayBack(self._admin(next(iter(self._nodes))), self, lambda _: None, self._pause)
        way.check()
        if any(one.state is not State.TIDEGATE for one in way.brokers) or len(way.brokers) != len(
            self._nodes
        ):
            raise FaultError("not every broker ran Tidegate's tracker: the fault was not done")
        way.go()
        return "; ".join(f"{self._nodes[one.name].name} runs {one.tracker}" for one in way.brokers)

    def check(self, broker: str) -> None:
        """Check that the home can be detached."""
        plan_detach(self._homes[broker])

    def detach(self, broker: str) -> None:
        """Detach the home, while its broker runs."""
        carry_out(plan_detach(self._homes[broker]))

    def restart(self, broker: str) -> None:
        """Stop it as a service manager does, and start it."""
        process = self._nodes[broker].broker
        process.stop()
        process.start()

    def _attach(self, name: str) -> None:
        wanted = Wanted(socket=self._nodes[name].daemon.socket_path, index_log=BOOKKEEPER_LOG)
        home = self._homes[name]
        carry_out(plan_attach(home, wanted, self._jar.read_bytes(), wanted.socket or home))

    @staticmethod
    def _admin(name: str) -> ClusterAdmin:
        return ClusterAdmin(f"http://{name}", RestClient())
