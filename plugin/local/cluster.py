"""A real Pulsar cluster on loopback: ZooKeeper, one bookie, and brokers that each have a daemon of their own.

Topics move between its brokers, and their daemons do not know of each other: what an owner promises the next
one is tried here. Invariants:

- everything that is written (metadata, ledgers, indexes, logs, conf files) is below ``work_dir``;
- every port is on 127.0.0.1 and free at the time of ``start``; a restart keeps the ports;
- only processes started here are ever signalled, by their pid, and none is left when ``end`` returns.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tidegate.plugin.local.broker import tidegate_conf
from tidegate.plugin.local.process import LOOPBACK, LocalProcess, LocalProcessError, accepts, free_ports

SESSION_TIMEOUT_MS = 5_000
_START_S = 90.0
_CLUSTER = "local"
# No longer than a socket's path may be, whatever the work directory is.
_SOCKET_PATH_BYTES_MAX = 107

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
    "httpServerEnabled": "false",
    "enableStatistics": "false",
}
_BROKER_CONF = {
    "clusterName": _CLUSTER,
    "bindAddress": LOOPBACK,
    "advertisedAddress": LOOPBACK,
    "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    # A topic moves when it is told to, and not because a broker has more to do.
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


class Node:
    """One broker of the cluster and the daemon beside it.

    ``broker`` and ``daemon`` are killed, paused and resumed by themselves; ``start_broker`` and
    ``start_daemon`` start them again with the same ports and data.
    """

    def __init__(self, name: str, work_dir: Path, broker: LocalProcess, daemon: LocalProcess) -> None:
        self.name = name
        self.broker = broker
        self.daemon = daemon
        self.socket_path = work_dir / f"{name}.sock"
        self.broker_port = 0
        self.web_port = 0

    @property
    def service_url(self) -> str:
        """What a Pulsar client connects to."""
        return f"pulsar://{LOOPBACK}:{self.broker_port}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface."""
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def broker_id(self) -> str:
        """How the other brokers know it."""
        return f"{LOOPBACK}:{self.web_port}"

    def start_daemon(self) -> None:
        """Start the daemon and wait until its socket answers."""
        self.daemon.spawn()
        self.daemon.wait_until(self._daemon_answers, _START_S)

    def start_broker(self) -> None:
        """Start the broker and wait until it is healthy."""
        self.broker.spawn()
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Return once the broker's health check says ok."""
        with httpx.Client(base_url=self.admin_url, timeout=5.0, trust_env=False) as client:
            self.broker.wait_until(lambda: _healthy(client), _START_S)

    def _daemon_answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self.socket_path))
            return True
        return False


class LocalCluster:
    """ZooKeeper, a bookie and ``brokers`` brokers with a daemon each.

    ``jar`` is the shim; without one the brokers run Pulsar's own tracker and no daemon is started. ``conf``
    overrides keys of the distribution's ``broker.conf`` for every broker. The sockets of the daemons are in
    ``socket_dir``, which must have a short path. ``broker_environment`` is added to what the brokers see, by
    their number.
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
        heap_mib: int = 384,
        jvm_options: Sequence[str] = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        broker_environment: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.work_dir = work_dir
        self._home = pulsar_home
        self._jar = jar
        self._heap_mib = heap_mib
        self._jvm_options = list(jvm_options)
        self._conf = dict(conf or {})
        self._check()
        ports = free_ports(2 + 2 * brokers)
        self._zookeeper_port, self._bookie_port = ports[:2]
        self._zookeeper = self._pulsar("zookeeper", "zookeeper", "PULSAR_ZK_CONF", heap_mib=128)
        self._bookie = self._pulsar("bookie", "bookie", "PULSAR_BOOKKEEPER_CONF", heap_mib=256)
        self.nodes: list[Node] = []
        for number in range(brokers):
            name = chr(ord("a") + number)
            extra = (broker_environment or {}).get(number, {})
            node = Node(name, socket_dir, self._broker(name, extra), self._daemon(name, socket_dir))
            if len(os.fsencode(node.socket_path)) > _SOCKET_PATH_BYTES_MAX:
                raise LocalProcessError(
                    f"{node.socket_path} is too long for a socket: give a shorter socket_dir"
                )
            node.broker_port, node.web_port = ports[2 + 2 * number : 4 + 2 * number]
            self.nodes.append(node)

    @property
    def service_url(self) -> str:
        """All brokers, for a client that goes to whichever has the topic."""
        return "pulsar://" + ",".join(f"{LOOPBACK}:{node.broker_port}" for node in self.nodes)

    def start(self) -> None:
        """Start everything. Raises ``LocalProcessError``; then nothing runs."""
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill everything: nobody reads the data again."""
        for node in self.nodes:
            node.broker.kill()
            node.daemon.kill()
        self._bookie.kill()
        self._zookeeper.kill()

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
        self._write_confs()
        self._zookeeper.spawn()
        if self._jar is not None:
            for node in self.nodes:
                node.daemon.spawn()
        self._zookeeper.wait_until(lambda: accepts(self._zookeeper_port), _START_S)
        self._initialize()
        self._bookie.spawn()
        self._bookie.wait_until(lambda: accepts(self._bookie_port), _START_S)
        for node in self.nodes:
            if self._jar is not None:
                node.daemon.wait_until(node._daemon_answers, _START_S)
            node.broker.spawn()
        for node in self.nodes:
            node.wait_healthy()

    def _initialize(self) -> None:
        first = self.nodes[0]
        store = f"zk:{LOOPBACK}:{self._zookeeper_port}"
        initializer = self._pulsar(
            "initialization of the cluster's metadata",
            "initialize-cluster-metadata",
            heap_mib=128,
            arguments=[
                "--cluster", _CLUSTER,
                "--metadata-store", store,
                "--configuration-metadata-store", store,
                "--web-service-url", first.admin_url,
                "--broker-service-url", first.service_url,
            ],
        )  # fmt: skip
        initializer.spawn()
        initializer.wait_done(_START_S)

    def _check(self) -> None:
        if not (self._home / "bin" / "pulsar").is_file():
            raise LocalProcessError(
                f"{self._home} is not a Pulsar home: run `tidegate setup`, which fetches one"
            )
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise LocalProcessError("no java found: install a JDK 17 or newer, or set JAVA_HOME")

    # --- the processes ----------------------------------------------------------------------------

    def _pulsar(
        self,
        name: str,
        command: str,
        conf_variable: str = "",
        *,
        heap_mib: int,
        arguments: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
        file_name: str = "",
    ) -> LocalProcess:
        file_name = file_name or command
        environment = {
            **os.environ,
            "PULSAR_LOG_DIR": str(self.work_dir / "logs"),
            "PULSAR_LOG_APPENDER": "Console",
            "PULSAR_MEM": f"-Xms64m -Xmx{heap_mib}m -XX:MaxDirectMemorySize={heap_mib}m",
            "PULSAR_GC": " ".join(self._jvm_options),
            "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=warning:stderr",
            "PULSAR_EXTRA_OPTS": "-Dpulsar.allocator.exit_on_oom=false",
            **(extra or {}),
        }
        if conf_variable:
            environment[conf_variable] = str(self.work_dir / f"{file_name}.conf")
        return LocalProcess(
            name,
            [str(self._home / "bin" / "pulsar"), command, *arguments],
            self.work_dir / f"{file_name}.log",
            environment,
        )

    def _broker(self, name: str, extra: Mapping[str, str]) -> LocalProcess:
        # A copy: building the shim again must not change a jar that a running JVM has open.
        classpath = "" if self._jar is None else str(self.work_dir / self._jar.name)
        return self._pulsar(
            f"broker {name}",
            "broker",
            "PULSAR_BROKER_CONF",
            heap_mib=self._heap_mib,
            extra={"PULSAR_EXTRA_CLASSPATH": classpath, **extra},
            file_name=f"broker-{name}",
        )

    def _daemon(self, name: str, socket_dir: Path) -> LocalProcess:
        command = [
            sys.executable, "-m", "tidegate.plugin.cli", "serve",
            "--data", str(self.work_dir / f"daemon-{name}"),
            "--socket", str(socket_dir / f"{name}.sock"),
            "--http", f"{LOOPBACK}:0",
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
        return LocalProcess(f"daemon {name}", command, self.work_dir / f"daemon-{name}.log", environment)

    # --- what they are told -----------------------------------------------------------------------

    def _write_confs(self) -> None:
        self.work_dir.mkdir(parents=True, exist_ok=True)
        if self._jar is not None:
            shutil.copy2(self._jar, self.work_dir)
        store = f"zk:{LOOPBACK}:{self._zookeeper_port}"
        self._write_conf(
            "zookeeper",
            {
                **_ZOOKEEPER_CONF,
                "dataDir": str(self.work_dir / "zookeeper"),
                "clientPort": str(self._zookeeper_port),
            },
        )
        self._write_conf(
            "bookie",
            {
                **_BOOKIE_CONF,
                "bookiePort": str(self._bookie_port),
                "metadataServiceUri": f"metadata-store:{store}",
                "journalDirectory": str(self.work_dir / "bookkeeper" / "journal"),
                "ledgerDirectories": str(self.work_dir / "bookkeeper" / "ledgers"),
            },
        )
        for node in self.nodes:
            self._write_conf(f"broker-{node.name}", self._broker_conf(node), self._broker_template())

    def _broker_conf(self, node: Node) -> dict[str, str]:
        store = f"zk:{LOOPBACK}:{self._zookeeper_port}"
        return {
            **_BROKER_CONF,
            "metadataStoreUrl": store,
            "configurationMetadataStoreUrl": store,
            "brokerServicePort": str(node.broker_port),
            "webServicePort": str(node.web_port),
            **({} if self._jar is None else tidegate_conf(node.socket_path)),
            **self._conf,
        }

    def _broker_template(self) -> str:
        template = self._home / "conf" / "broker.conf"
        try:
            return template.read_text(encoding="utf-8") + "\n"
        except OSError as error:
            raise LocalProcessError(f"{self._home} is not a Pulsar home: cannot read {template}") from error

    def _write_conf(self, name: str, settings: Mapping[str, str], template: str = "") -> None:
        # Properties files: of a key that stands twice the last one counts.
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self.work_dir / f"{name}.conf").write_text(template + lines, encoding="utf-8")


def _healthy(client: httpx.Client) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return client.get("/admin/v2/brokers/health").text.strip() == "ok"
    return False
