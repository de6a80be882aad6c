"""A real Pulsar cluster on loopback: ZooKeeper, one bookie, and brokers with a daemon each.

Topics move between its brokers, and their daemons do not know each other: this tests one owner's promises to
the next. Invariants:

- every file (metadata, indexes, ledgers, logs, conf files) is below ``work_dir``;
- every port is on 127.0.0.1 and was free when the cluster was made; a restart keeps the ports;
- no process started here is left when ``end`` returns.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.plugin.local.counters import telemetry_options
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import (
    LOOPBACK,
    START_TIMEOUT_S,
    LocalProcessError,
    Pause,
    free_ports,
)
from tidegate.plugin.local.pulsar_process import (
    HTTP_TIMEOUT_S,
    Bookie,
    ClusterBroker,
    Jvm,
    ZooKeeper,
    environment_of,
)
from tidegate.plugin.local.trackers import tidegate_conf

CLUSTER_NAME = "local"
SESSION_TIMEOUT_MS = 5_000
_ZOOKEEPER_CONF = {
    "tickTime": "500",
    "initLimit": "10",
    "syncLimit": "5",
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "clientPortAddress": LOOPBACK,
    "admin.enableServer": "false",
}
_BOOKIE_CONF = {
    "listeningInterface": "lo",
    "allowLoopback": "true",
    "advertisedAddress": LOOPBACK,
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": "64",
    "dbStorage_readAheadCacheMaxSizeMb": "32",
    "nettyMaxFrameSizeBytes": "5253120",
    "httpServerEnabled": "true",
    "httpServerClass": "org.apache.bookkeeper.http.vertx.VertxHttpServer",
    "httpServerHost": LOOPBACK,
    "enableStatistics": "false",
}
_BROKER_CONF = {
    "clusterName": CLUSTER_NAME,
    "bindAddress": LOOPBACK,
    "advertisedAddress": LOOPBACK,
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    # A topic moves only on command, not because of load.
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "brokerShutdownTimeoutMs": "5000",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "metadataStoreSessionTimeoutMillis": str(SESSION_TIMEOUT_MS),
}


def metadata_conf(url: str) -> dict[str, str]:
    """A broker's conf keys for metadata at ``url``, as ``zk:host:port``."""
    return {"metadataStoreUrl": url, "configurationMetadataStoreUrl": url}


def bookie_metadata_conf(url: str) -> dict[str, str]:
    """The same of a bookie."""
    return {"metadataServiceUri": f"metadata-store:{url}"}


@dataclass(frozen=True)
class Node:
    """One broker of the cluster and its daemon; each can be killed, paused and started alone."""

    name: str
    broker: ClusterBroker
    daemon: Daemon
    counters_port: int | None = None
    """The port for the broker's counters (``local.counters``), if it counts."""


class LocalCluster:
    """ZooKeeper, a bookie, and ``brokers`` brokers with a daemon each.

    ``jar`` is the shim; without one the brokers run Pulsar's own tracker and there are no daemons. ``conf``
    overrides keys of the distribution's ``broker.conf`` for every broker, ``bookie_conf`` of its
    ``bookkeeper.conf``. The daemons' sockets are in ``socket_dir``, a short path; they get
    ``daemon_settings``. With ``counters`` the brokers count their reads. ``metadata_url`` names a running
    metadata store (``oxia://…``), which replaces ZooKeeper. Errors are ``LocalProcessError``.
    """

    def __init__(
        self,
        pulsar_home: Path,
        work_dir: Path,
        socket_dir: Path,
        *,
        jar: Path | None,
        brokers: int = 2,
        conf: Mapping[str, str] | None = None,
        bookie_conf: Mapping[str, str] | None = None,
        daemon_settings: Mapping[str, str] | None = None,
        metadata_url: str | None = None,
        counters: bool = False,
        jvm: Jvm | None = None,
        guard: Guard | None = None,
        pause: Pause = time.sleep,
    ) -> None:
        self.work_dir = work_dir
        self._home = pulsar_home
        self._jar = jar
        jvm = jvm or Jvm()
        small = Jvm(
            heap_mib=min(jvm.heap_mib, 256), direct_mib=jvm.direct_mib, gc=jvm.gc, options=jvm.options
        )
        ports = free_ports(3 + 3 * brokers)
        self.bookie_url = f"http://{LOOPBACK}:{ports[2]}"
        self.zookeeper_address = f"{LOOPBACK}:{ports[0]}"
        self._has_zookeeper = metadata_url is None
        self._store = metadata_url or f"zk:{self.zookeeper_address}"
        self._small = small
        self.zookeeper = ZooKeeper(
            pulsar_home,
            work_dir / "zookeeper",
            port=ports[0],
            conf={**_ZOOKEEPER_CONF, "dataDir": str(work_dir / "zookeeper"), "clientPort": str(ports[0])},
            jvm=small,
            guard=guard,
            pause=pause,
        )
        self.bookie = Bookie(
            pulsar_home,
            work_dir / "bookie",
            port=ports[1],
            conf={
                **_BOOKIE_CONF,
                "bookiePort": str(ports[1]),
                "httpServerPort": str(ports[2]),
                **bookie_metadata_conf(self._store),
                "journalDirectory": str(work_dir / "bookie" / "journal"),
                "ledgerDirectories": str(work_dir / "bookie" / "ledgers"),
                **(bookie_conf or {}),
            },
            jvm=small,
            guard=guard,
            pause=pause,
        )
        self.nodes = []
        for number in range(brokers):
            name = chr(ord("a") + number)
            port, web_port, counters_port = ports[3 + 3 * number : 6 + 3 * number]
            daemon = Daemon(
                work_dir / name,
                socket_path=socket_dir / f"{name}.sock",
                settings=daemon_settings,
                guard=guard,
                pause=pause,
            )
            broker = ClusterBroker(
                pulsar_home,
                work_dir / name,
                port=port,
                web_port=web_port,
                jar=jar,
                conf={
                    **_BROKER_CONF,
                    **metadata_conf(self._store),
                    **({} if jar is None else tidegate_conf(daemon.socket_path)),
                    **(conf or {}),
                },
                jvm=replace(jvm, options=[*jvm.options, *telemetry_options(counters_port)])
                if counters
                else jvm,
                guard=guard,
                pause=pause,
            )
            self.nodes.append(Node(name, broker, daemon, counters_port if counters else None))

    @property
    def service_url(self) -> str:
        """All brokers, for a client that connects to the topic's owner."""
        return "pulsar://" + ",".join(f"{LOOPBACK}:{node.broker.port}" for node in self.nodes)

    def metadata_writes(self) -> int:
        """The writes counted by the metadata store since its start."""
        try:
            with socket.create_connection((LOOPBACK, self.zookeeper.port), HTTP_TIMEOUT_S) as asking:
                asking.sendall(b"srvr")
                answer = b"".join(iter(partial(asking.recv, 4_096), b""))
        except OSError as error:
            raise LocalProcessError(f"ZooKeeper does not say how much it has written: {error}") from error
        last = re.search(rb"^Zxid: 0x([0-9a-f]+)", answer, re.MULTILINE)
        if last is None:
            raise LocalProcessError("ZooKeeper does not say how much it has written")
        # The upper half counts changes of the leader.
        return int(last[1], 16) & 0xFFFF_FFFF

    def start(self) -> None:
        """Start everything and wait until it is usable; on failure nothing keeps running."""
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill everything: nobody needs the data again."""
        for node in self.nodes:
            node.broker.kill()
            node.daemon.kill()
        self.bookie.kill()
        self.zookeeper.kill()

    def __enter__(self) -> Self:
        """Start on entry."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill on exit."""
        self.end()

    def _start(self) -> None:
        if not (self._home / "bin" / "pulsar").is_file():
            raise LocalProcessError(f"{self._home} is not a Pulsar home: `tidegate setup` fetches one")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise LocalProcessError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
        if self._has_zookeeper:
            self.zookeeper.start()
        self._initialize()
        self.bookie.start()
        # Together: each takes a while, and none needs another.
        for node in self.nodes:
            if self._jar is not None:
                node.daemon.spawn()
            node.broker.spawn()
        for node in self.nodes:
            if self._jar is not None:
                node.daemon.wait_ready()
            node.broker.wait_ready()

    def _initialize(self) -> None:
        """Write the initial metadata of a cluster."""
        first = self.nodes[0].broker
        command = [
            str(self._home / "bin" / "pulsar"), "initialize-cluster-metadata",
            "--cluster", CLUSTER_NAME,
            "--metadata-store", self._store,
            "--configuration-metadata-store", self._store,
            "--web-service-url", first.admin_url,
            "--broker-service-url", first.service_url,
        ]  # fmt: skip
        log_path = self.work_dir / "initialize.log"
        with log_path.open("ab") as log:
            try:
                subprocess.run(  # noqa: S603
                    command,
                    env=environment_of(self.work_dir, self._small),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=START_TIMEOUT_S,
                    check=True,
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                raise LocalProcessError(
                    f"the cluster's metadata could not be initialized; see {log_path}"
                ) from error
