"""A real Pulsar cluster on loopback: ZooKeeper, one bookie, and brokers that each have a daemon of their own.

Topics move between its brokers, and their daemons do not know of each other: what an owner promises the next
one is tried here. Invariants:

- everything that is written (metadata, ledgers, indexes, logs, conf files) is below ``work_dir``;
- every port is on 127.0.0.1 and was free when the cluster was made; a restart keeps the ports;
- nothing that was started here is left when ``end`` returns.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import httpx

from tidegate.plugin.local.counters import telemetry_options
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import (
    LOOPBACK,
    START_TIMEOUT_S,
    LocalProcess,
    LocalProcessError,
    Pause,
    free_ports,
)
from tidegate.plugin.local.trackers import tidegate_conf

CLUSTER_NAME = "local"
SESSION_TIMEOUT_MS = 5_000
_HTTP_TIMEOUT_S = 5.0
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


@dataclass(frozen=True)
class Jvm:
    """How much memory a JVM of the cluster gets, and what else it is told."""

    heap_mib: int = 384
    # They live for minutes: compiling less halves their start.
    options: Sequence[str] = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class PulsarProcess(LocalProcess):
    """One of the distribution's programs with a conf file of its own, ready when its port is answered.

    ``template`` is the file of the distribution's ``conf`` that ``conf`` overrides, if there is one.
    """

    command: ClassVar[str]
    conf_variable: ClassVar[str]
    template: ClassVar[str] = ""

    def __init__(
        self,
        pulsar_home: Path,
        work_dir: Path,
        *,
        port: int,
        conf: Mapping[str, str],
        jvm: Jvm,
        guard: Guard | None,
        pause: Pause,
    ) -> None:
        super().__init__(work_dir, guard, pause)
        self.port = port
        self._home = pulsar_home
        self._conf = dict(conf)
        self._jvm = jvm

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        path = self.work_dir / f"{self.name}.conf"
        # A properties file: of a key that stands twice the last one counts.
        lines = "".join(f"{key}={value}\n" for key, value in self._conf.items())
        path.write_text(self._read_template() + lines, encoding="utf-8")
        environment = _environment(self.work_dir, self._jvm) | {self.conf_variable: str(path)}
        return [str(self._home / "bin" / "pulsar"), self.command], environment

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:  # noqa: ARG002
        return self._not_listening

    def _not_listening(self) -> str | None:
        with socket.socket() as probe:
            answers = probe.connect_ex((LOOPBACK, self.port)) == 0
        return None if answers else f"port {self.port} is not answered"

    def _read_template(self) -> str:
        if not self.template:
            return ""
        path = self._home / "conf" / self.template
        try:
            return path.read_text(encoding="utf-8") + "\n"
        except OSError as error:
            raise LocalProcessError(f"{self._home} is not a Pulsar home: cannot read {path}") from error


class ZooKeeper(PulsarProcess):
    """The cluster's metadata."""

    name = "zookeeper"
    command = "zookeeper"
    conf_variable = "PULSAR_ZK_CONF"


class Bookie(PulsarProcess):
    """The cluster's storage; ready when it is registered.

    One that was killed finds its former registration in ZooKeeper until that session has expired, and gives
    up, at times without ending. It is started again until it is taken, as a service manager would do.
    """

    name = "bookie"
    command = "bookie"
    conf_variable = "PULSAR_BOOKKEEPER_CONF"
    _was_ready = False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once it is registered; raise if it never was and gives up, or the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                super().wait_ready(max(0.0, deadline_s - time.monotonic()))
            except LocalProcessError:
                if not self._was_ready or time.monotonic() > deadline_s:
                    raise
            else:
                self._was_ready = True
                return
            self.kill()
            self.spawn()

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        # Its port is answered before it is registered; its HTTP server is started after that.
        url = f"http://{LOOPBACK}:{self._conf['httpServerPort']}"
        client = httpx.Client(base_url=url, timeout=_HTTP_TIMEOUT_S, trust_env=False)
        return partial(_unregistered, asking.enter_context(client))


class ClusterBroker(PulsarProcess):
    """One broker; ready when it is healthy. ``jar`` is the shim, None without it."""

    name = "broker"
    command = "broker"
    conf_variable = "PULSAR_BROKER_CONF"
    template = "broker.conf"

    def __init__(
        self,
        pulsar_home: Path,
        work_dir: Path,
        *,
        port: int,
        web_port: int,
        jar: Path | None,
        conf: Mapping[str, str],
        jvm: Jvm,
        guard: Guard | None,
        pause: Pause,
    ) -> None:
        own = {"brokerServicePort": str(port), "webServicePort": str(web_port)}
        super().__init__(
            pulsar_home, work_dir, port=port, conf={**own, **conf}, jvm=jvm, guard=guard, pause=pause
        )
        self.broker_id = f"{LOOPBACK}:{web_port}"
        self._jar = jar

    @property
    def service_url(self) -> str:
        """What a Pulsar client connects to."""
        return f"pulsar://{LOOPBACK}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface."""
        return f"http://{self.broker_id}"

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        if self._jar is not None:
            # A copy: building the shim again must not change a jar that a running JVM has open.
            copy = self.work_dir / self._jar.name
            if not copy.exists():
                shutil.copy2(self._jar, copy)
            environment["PULSAR_EXTRA_CLASSPATH"] = str(copy)
        return command, environment

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        client = httpx.Client(base_url=self.admin_url, timeout=_HTTP_TIMEOUT_S, trust_env=False)
        return partial(_unhealthy, asking.enter_context(client))


@dataclass(frozen=True)
class Node:
    """One broker of the cluster and the daemon beside it; each is killed, paused and started by itself."""

    name: str
    broker: ClusterBroker
    daemon: Daemon
    counters_port: int | None = None
    """Where the broker's counters can be read (``local.counters``), if it was asked to count."""


class LocalCluster:
    """ZooKeeper, a bookie and ``brokers`` brokers with a daemon each.

    ``jar`` is the shim; without one the brokers run Pulsar's own tracker and no daemon is started. ``conf``
    overrides keys of the distribution's ``broker.conf`` for every broker. The daemons' sockets are in
    ``socket_dir``, whose path must be short; they get ``daemon_settings``. With ``counters`` the brokers
    count what they read. Errors are ``LocalProcessError``.
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
        daemon_settings: Mapping[str, str] | None = None,
        counters: bool = False,
        jvm: Jvm | None = None,
        guard: Guard | None = None,
        pause: Pause = time.sleep,
    ) -> None:
        self.work_dir = work_dir
        self._home = pulsar_home
        self._jar = jar
        jvm = jvm or Jvm()
        small = Jvm(heap_mib=min(jvm.heap_mib, 256), options=jvm.options)
        ports = free_ports(3 + 3 * brokers)
        self.bookie_url = f"http://{LOOPBACK}:{ports[2]}"
        self._store = f"zk:{LOOPBACK}:{ports[0]}"
        self._small = small
        self._zookeeper = ZooKeeper(
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
                "metadataServiceUri": f"metadata-store:{self._store}",
                "journalDirectory": str(work_dir / "bookie" / "journal"),
                "ledgerDirectories": str(work_dir / "bookie" / "ledgers"),
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
                    "metadataStoreUrl": self._store,
                    "configurationMetadataStoreUrl": self._store,
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
        """All brokers, for a client that goes to whichever has the topic."""
        return "pulsar://" + ",".join(f"{LOOPBACK}:{node.broker.port}" for node in self.nodes)

    def metadata_writes(self) -> int:
        """How many writes the metadata store has taken since its start."""
        try:
            with socket.create_connection((LOOPBACK, self._zookeeper.port), _HTTP_TIMEOUT_S) as asking:
                asking.sendall(b"srvr")
                answer = b"".join(iter(partial(asking.recv, 4_096), b""))
        except OSError as error:
            raise LocalProcessError(f"ZooKeeper does not say how much it has written: {error}") from error
        last = re.search(rb"^Zxid: 0x([0-9a-f]+)", answer, re.MULTILINE)
        if last is None:
            raise LocalProcessError("ZooKeeper does not say how much it has written")
        # The upper half counts leaders.
        return int(last[1], 16) & 0xFFFF_FFFF

    def start(self) -> None:
        """Start everything and wait until it can be used; if that fails, nothing runs."""
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
        self.bookie.kill()
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
        if not (self._home / "bin" / "pulsar").is_file():
            raise LocalProcessError(f"{self._home} is not a Pulsar home: `tidegate setup` fetches one")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise LocalProcessError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
        self._zookeeper.start()
        self._initialize()
        self.bookie.start()
        # Together: each of them takes a while, and none needs another.
        for node in self.nodes:
            if self._jar is not None:
                node.daemon.spawn()
            node.broker.spawn()
        for node in self.nodes:
            if self._jar is not None:
                node.daemon.wait_ready()
            node.broker.wait_ready()

    def _initialize(self) -> None:
        """Write what every cluster begins with into the metadata."""
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
                    env=_environment(self.work_dir, self._small),
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


def _environment(work_dir: Path, jvm: Jvm) -> dict[str, str]:
    """What every program of the distribution is told by its environment."""
    return {
        **os.environ,
        "PULSAR_LOG_DIR": str(work_dir / "logs"),
        "PULSAR_LOG_APPENDER": "Console",
        "PULSAR_MEM": f"-Xms64m -Xmx{jvm.heap_mib}m -XX:MaxDirectMemorySize={jvm.heap_mib}m",
        "PULSAR_GC": " ".join(jvm.options),
        # Pulsar's default logs every collection to the console: noise that hides the program's own lines.
        "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=warning:stderr",
        "PULSAR_EXTRA_OPTS": "-Dpulsar.allocator.exit_on_oom=false",
    }


def _unregistered(bookie: httpx.Client) -> str | None:
    """What the bookie lacks, in words; None when nothing. Raises if it has given up."""
    try:
        if bookie.get("/api/v1/bookie/is_ready").is_success:
            return None
        state = bookie.get("/api/v1/bookie/state")
        if state.is_success and state.json()["shuttingDown"]:
            raise LocalProcessError("the bookie gave up while starting; its log says why")
    except httpx.HTTPError:
        return f"{bookie.base_url} does not answer"
    return "it does not say that it is ready"


def _unhealthy(admin: httpx.Client) -> str | None:
    """What the broker lacks, in words; None when nothing."""
    try:
        healthy = admin.get("/admin/v2/brokers/health").text.strip() == "ok"
    except httpx.HTTPError:
        return f"{admin.base_url} does not answer"
    return None if healthy else "its health check does not say ok"
