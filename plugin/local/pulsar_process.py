"""The programs of Pulsar's distribution that form a cluster, each a process with its own conf file.

Invariants: a program's conf file and everything that it writes are below its ``work_dir``; the distribution
is only read; ready means usable by the next program, not merely started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import httpx

from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import (
    LOOPBACK,
    START_TIMEOUT_S,
    LocalProcess,
    LocalProcessError,
    Pause,
)

HTTP_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Jvm:
    """A JVM's memory and options.

    ``direct_mib``: as much as the heap by default. ``gc`` replaces the distribution's choice of a collector;
    empty keeps it.
    """

    heap_mib: int = 384
    start_mib: int = 64
    direct_mib: int | None = None
    # A cluster's JVMs live for minutes: compiling less halves their start.
    gc: Sequence[str] = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    options: Sequence[str] = ()


class PulsarProcess(LocalProcess):
    """One of the distribution's programs with its own conf file, ready when its port answers.

    ``conf`` overrides ``template``, a file in the distribution's ``conf``, if any. ``jars`` go on its
    classpath and leave the distribution alone. They are copied at the first start: another build of the shim
    must not change a jar that a running JVM has open.
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
        jars: Sequence[Path] = (),
    ) -> None:
        super().__init__(work_dir, guard, pause)
        self.pulsar_home = pulsar_home
        self.port = port
        self._conf = dict(conf)
        self._jvm = jvm
        self._jars = list(jars)

    def configure(self, conf: Mapping[str, str]) -> None:
        """Set keys of the conf file, from the next start on."""
        self._conf |= conf

    def start_from(self, pulsar_home: Path, *, without: Collection[str]) -> None:
        """Use another distribution from the next start on, with its own jars and its own values of
        some keys.
        """
        self.pulsar_home = pulsar_home
        self._jars = []
        self._conf = {key: value for key, value in self._conf.items() if key not in without}

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise LocalProcessError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
        path = self.work_dir / (self.template or f"{self.name}.conf")
        # Of a repeated key in a properties file the last value counts.
        lines = "".join(f"{key}={value}\n" for key, value in self._conf.items())
        path.write_text(f"{self._read_template()}# Set by tidegate for this run\n{lines}", encoding="utf-8")
        environment = environment_of(self.work_dir, self._jvm) | {self.conf_variable: str(path)}
        if self._jars:
            environment["PULSAR_EXTRA_CLASSPATH"] = ":".join(map(str, self._own_jars()))
        return [str(self.pulsar_home / "bin" / "pulsar"), self.command], environment

    def _own_jars(self) -> list[Path]:
        copies = [self.work_dir / jar.name for jar in self._jars]
        for jar, copy in zip(self._jars, copies, strict=True):
            if not copy.exists():
                shutil.copy2(jar, copy)
        return copies

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:  # noqa: ARG002
        return self._not_listening

    def _not_listening(self) -> str | None:
        with socket.socket() as probe:
            answers = probe.connect_ex((LOOPBACK, self.port)) == 0
        return None if answers else f"port {self.port} is not answered"

    def _read_template(self) -> str:
        if not self.template:
            return ""
        path = self.pulsar_home / "conf" / self.template
        try:
            return path.read_text(encoding="utf-8") + "\n"
        except OSError as error:
            raise LocalProcessError(f"{self.pulsar_home} is not a Pulsar home: cannot read {path}") from error


class ZooKeeper(PulsarProcess):
    """The cluster's metadata."""

    name = "zookeeper"
    command = "zookeeper"
    conf_variable = "PULSAR_ZK_CONF"


class Bookie(PulsarProcess):
    """The cluster's storage; ready when registered.

    A killed bookie finds its former registration in ZooKeeper until that session expires, and gives up, at
    times without ending. So it is restarted until ZooKeeper accepts it, as a service manager would do.
    """

    name = "bookie"
    command = "bookie"
    conf_variable = "PULSAR_BOOKKEEPER_CONF"
    _was_ready = False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return once it is registered; raise if it gives up unregistered, or the time is up."""
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
        # Its port answers before it is registered, its HTTP server only afterwards.
        url = f"http://{LOOPBACK}:{self._conf['httpServerPort']}"
        return partial(_unregistered, http_client(asking, url))


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
            pulsar_home,
            work_dir,
            port=port,
            conf={**own, **conf},
            jvm=jvm,
            guard=guard,
            pause=pause,
            jars=[] if jar is None else [jar],
        )
        self.broker_id = f"{LOOPBACK}:{web_port}"

    @property
    def service_url(self) -> str:
        """The URL for Pulsar clients."""
        return f"pulsar://{LOOPBACK}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface."""
        return f"http://{self.broker_id}"

    def _probe(self, asking: contextlib.ExitStack) -> Callable[[], str | None]:
        return partial(unhealthy, http_client(asking, self.admin_url))


def environment_of(work_dir: Path, jvm: Jvm) -> dict[str, str]:
    """The environment of the distribution's programs."""
    return {
        **os.environ,
        "PULSAR_LOG_DIR": str(work_dir / "logs"),
        "PULSAR_LOG_APPENDER": "Console",
        "PULSAR_MEM": (
            f"-Xms{min(jvm.heap_mib, jvm.start_mib)}m -Xmx{jvm.heap_mib}m"
            f" -XX:MaxDirectMemorySize={jvm.direct_mib or jvm.heap_mib}m"
        ),
        **({"PULSAR_GC": " ".join(jvm.gc)} if jvm.gc else {}),
        # By default Pulsar logs every collection to the console, which hides the program's own lines.
        "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=warning:stderr",
        "PULSAR_EXTRA_OPTS": " ".join(
            [
                *filter(None, [os.environ.get("PULSAR_EXTRA_OPTS")]),
                "-Dpulsar.allocator.exit_on_oom=false",
                *jvm.options,
            ]
        ),
    }


def http_client(asking: contextlib.ExitStack, url: str) -> httpx.Client:
    """A client to ask a program over HTTP if it is ready; ``asking`` closes it."""
    return asking.enter_context(httpx.Client(base_url=url, timeout=HTTP_TIMEOUT_S, trust_env=False))


def _unregistered(bookie: httpx.Client) -> str | None:
    """The bookie's missing part, in words; None once ready. Raises if it has given up."""
    try:
        if bookie.get("/api/v1/bookie/is_ready").is_success:
            return None
        state = bookie.get("/api/v1/bookie/state")
        if state.is_success and state.json()["shuttingDown"]:
            raise LocalProcessError("the bookie gave up while starting; its log says why")
    except httpx.HTTPError:
        return f"{bookie.base_url} does not answer"
    return "it does not say that it is ready"


def unhealthy(admin: httpx.Client) -> str | None:
    """The broker's missing part, in words; None once ready."""
    try:
        healthy = admin.get("/admin/v2/brokers/health").text.strip() == "ok"
    except httpx.HTTPError:
        return f"{admin.base_url} does not answer"
    return None if healthy else "its health check does not say ok"
