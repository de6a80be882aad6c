"""A Pulsar standalone broker on loopback, as a process that one can kill.

The demo, the drills, the tests against a real broker and the benches all start their broker here, so that
they measure the same thing. Invariants:

- everything the broker writes (metadata, ledgers, logs, its conf file) is below ``work_dir``;
- every port is on 127.0.0.1 and free at the time of ``start``; a restart keeps the ports;
- only the process started here is ever signalled, by its pid.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tidegate.plugin.local import toolchain
from tidegate.plugin.local.stale_bookie import forget_bookies

LOOPBACK = "127.0.0.1"
TRACKER_FACTORY = "tidegate.pulsar.TrackerFactory"


class LocalBrokerError(Exception):
    """The broker could not be started or did not become healthy; the message says what to look at."""


@dataclass(frozen=True)
class BrokerPorts:
    """The loopback ports of one standalone broker."""

    broker: int
    web: int
    bookie: int

    @classmethod
    def free(cls) -> Self:
        """Ports that are free now: all three are held open together so that they differ."""
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for one in sockets:
                one.bind((LOOPBACK, 0))
            broker, web, bookie = (one.getsockname()[1] for one in sockets)
        return cls(broker, web, bookie)


def tidegate_conf(socket_path: Path, **extra: str) -> dict[str, str]:
    """The conf keys that attach a broker to the daemon listening on ``socket_path``."""
    return {
        "delayedDeliveryTrackerFactoryClassName": TRACKER_FACTORY,
        "tidegateSocket": str(socket_path),
        **extra,
    }


class LocalBroker:
    """One Pulsar standalone (metadata, bookie and broker in one JVM), without functions worker.

    ``conf`` overrides keys of the distribution's own ``standalone.conf``; ``extra_classpath`` is where the
    shim's jar comes in without touching the distribution.
    """

    def __init__(
        self,
        pulsar_home: Path,
        work_dir: Path,
        *,
        conf: Mapping[str, str] | None = None,
        extra_classpath: Sequence[Path] = (),
        heap_mib: int = 512,
        direct_mib: int = 512,
        jvm_options: Sequence[str] = (),
        ports: BrokerPorts | None = None,
    ) -> None:
        self.pulsar_home = pulsar_home
        self.work_dir = work_dir
        self.ports = ports or BrokerPorts.free()
        self._conf = dict(conf or {})
        self._extra_classpath = [str(path) for path in extra_classpath]
        self._memory = f"-Xms{min(heap_mib, 256)}m -Xmx{heap_mib}m -XX:MaxDirectMemorySize={direct_mib}m"
        self._jvm_options = list(jvm_options)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def service_url(self) -> str:
        """What a Pulsar client connects to."""
        return f"pulsar://{LOOPBACK}:{self.ports.broker}"

    @property
    def admin_url(self) -> str:
        """The base of the admin REST interface and of ``/metrics``."""
        return f"http://{LOOPBACK}:{self.ports.web}"

    @property
    def log_path(self) -> Path:
        """The broker's log: appended to over restarts."""
        return self.work_dir / "broker.log"

    @property
    def _metadata_dir(self) -> Path:
        return self.work_dir / "metadata"

    @property
    def pid(self) -> int:
        """The process id of the running JVM."""
        if self._process is None:
            raise LocalBrokerError("the broker is not running; call start() first")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process started here is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 120.0) -> None:
        """Start the JVM and wait until the broker answers its health check."""
        self.spawn()
        self.wait_healthy(timeout_s)

    def spawn(self) -> None:
        """Start the JVM without waiting for it."""
        if self.running:
            raise LocalBrokerError(f"the broker already runs as pid {self.pid}")
        self._check_ports()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        forget_bookies(self._metadata_dir)
        java = shutil.which("java")
        if java is None and "JAVA_HOME" not in os.environ:
            raise LocalBrokerError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
        environment = {
            **os.environ,
            "PULSAR_STANDALONE_CONF": str(self._write_conf()),
            "PULSAR_LOG_DIR": str(self.work_dir / "logs"),
            "PULSAR_LOG_APPENDER": "Console",
            "PULSAR_MEM": self._memory,
            # Pulsar's default logs every collection to the console: noise that hides the broker's own lines.
            "PULSAR_GC_LOG": "-Xlog:disable -Xlog:all=warning:stderr",
            "PULSAR_EXTRA_OPTS": " ".join(["-Dpulsar.allocator.exit_on_oom=false", *self._jvm_options]),
            "PULSAR_EXTRA_CLASSPATH": ":".join(self._extra_classpath),
        }
        command = [
            str(self.pulsar_home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "-a", LOOPBACK,
            "--metadata-dir", str(self._metadata_dir),
            "--bookkeeper-dir", str(self.work_dir / "bookkeeper"),
            "--bookkeeper-port", str(self.ports.bookie),
        ]  # fmt: skip
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal reaches the parent alone, which stops the broker.
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env=environment,
                cwd=self.work_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_healthy(self, timeout_s: float = 120.0) -> None:
        """Return once ``/admin/v2/brokers/health`` says ok; raise if the process ends or the time is up."""
        deadline_s = time.monotonic() + timeout_s
        with httpx.Client(base_url=self.admin_url, timeout=5.0, trust_env=False) as client:
            while time.monotonic() < deadline_s:
                if self._process is None or self._process.poll() is not None:
                    raise LocalBrokerError(
                        f"the broker ended while starting; its log says why: {self.log_path}"
                    )
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("/admin/v2/brokers/health").text.strip() == "ok":
                        return
                # There is no event to wait for: the health check is the broker's only sign of life.
                time.sleep(0.05)
        raise LocalBrokerError(f"the broker was not healthy after {timeout_s:.0f} s; see {self.log_path}")

    def kill(self) -> None:
        """Kill -9 and wait for the process to be gone."""
        self._end(signal.SIGKILL, timeout_s=10.0)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop gracefully (SIGTERM); kill when that takes longer than ``timeout_s``."""
        self._end(signal.SIGTERM, timeout_s)

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10.0)
        self._process = None

    def __enter__(self) -> Self:
        """Start on entry."""
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill on exit: nobody reads the data again."""
        self.kill()

    def _check_ports(self) -> None:
        problems = toolchain.check_ports(vars(self.ports))
        if problems:
            raise LocalBrokerError(problems[0].text)

    def _write_conf(self) -> Path:
        template = self.pulsar_home / "conf" / "standalone.conf"
        try:
            text = template.read_text(encoding="utf-8")
        except OSError as error:
            raise LocalBrokerError(
                f"{self.pulsar_home} is not a Pulsar home: cannot read {template}"
            ) from error
        settings = {
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "brokerServicePort": str(self.ports.broker),
            "webServicePort": str(self.ports.web),
            "allowLoopback": "true",
            "listeningInterface": "lo",
            # Without it the standalone takes another port for its bookie at every start than it was told.
            "allowEphemeralPorts": "true",
            **self._conf,
        }
        # A properties file: of a key that stands twice the last one counts.
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        path = self.work_dir / "standalone.conf"
        path.write_text(f"{text}\n# Set by tidegate for this run\n{lines}", encoding="utf-8")
        return path
