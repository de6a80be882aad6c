"""The programs of Pulsar's distribution that make up a cluster, each a process with a conf file of its own.

Invariants: a conf file, and all that a program writes, is below its ``work_dir``; the distribution itself is
only read; ready means that the program does what the next one needs of it, not that it has been started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
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
        environment = environment_of(self.work_dir, self._jvm) | {self.conf_variable: str(path)}
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
        client = httpx.Client(base_url=url, timeout=HTTP_TIMEOUT_S, trust_env=False)
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
        client = httpx.Client(base_url=self.admin_url, timeout=HTTP_TIMEOUT_S, trust_env=False)
        return partial(_unhealthy, asking.enter_context(client))


def environment_of(work_dir: Path, jvm: Jvm) -> dict[str, str]:
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
