"""The broker and the daemon of the demo, as things that are started, killed and started again.

Invariants: every process has a session of its own (a Ctrl-C of the terminal reaches the demo alone) and is
known to the guard from its start to its end; only processes started here are signalled; each wait looks at
``stop`` often, so that an interrupt is answered in a fraction of a second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.broker import LOOPBACK, LocalBroker, LocalBrokerError, tidegate_conf
from tidegate.plugin.local.guard import Guard


@dataclass(frozen=True)
class TrackerChoice:
    """Who may delay the messages; without a ``factory`` it is Tidegate."""

    title: str
    factory: str | None = None


TRACKERS = {
    "tidegate": TrackerChoice("Tidegate"),
    "pulsar": TrackerChoice(
        "Pulsar's in-memory tracker", "org.apache.pulsar.broker.delayed.InMemoryDelayedDeliveryTrackerFactory"
    ),
    "bucket": TrackerChoice(
        "Pulsar's Bucket tracker", "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
    ),
}
# So small that a run of a minute goes through several slices and 100,000 messages do not fit into memory.
_DAEMON_SETTINGS = {"TIDEGATE_SLICE_WIDTH_MS": "10000", "TIDEGATE_STAGING_BYTES": "524288"}
_POLL_S = 0.02
_BROKER_TIMEOUT_S = 120.0
_DAEMON_TIMEOUT_S = 30.0


class DemoError(UserError):
    """The demo cannot start or go on; the message says what to look at."""


class InterruptedDemoError(DemoError):
    """Somebody asked the demo to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("interrupted; every process that the demo started has been stopped")
        self.exit_code = 128 + signal_number


class Stop:
    """A request to stop, made from a signal handler and looked at wherever the demo waits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal_number = signal.SIGINT.value

    def request(self, signal_number: int = signal.SIGINT) -> None:
        """Ask for the end, because ``signal_number`` came."""
        self._signal_number = signal_number
        self._event.set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises ``InterruptedDemoError`` as soon as the end is asked for."""
        if self._event.wait(max(seconds, 0.0)):
            raise InterruptedDemoError(self._signal_number)

    def until(self, what: str, done: Callable[[], bool], timeout_s: float) -> None:
        """Wait for ``done``. Raises ``DemoError`` naming ``what`` when the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline_s:
                raise DemoError(f"{what} took more than {timeout_s:.0f} s")
            self.pause(_POLL_S)


class Daemon:
    """``tidegate serve``; a restart keeps its data, socket and port."""

    def __init__(self, work_dir: Path, socket_path: Path, guard: Guard) -> None:
        self.log_path = work_dir / "daemon.log"
        self._data = work_dir / "index"
        self._socket_path = socket_path
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind((LOOPBACK, 0))
            self.url = f"http://{LOOPBACK}:{probe.getsockname()[1]}"

    def spawn(self) -> None:
        """Start it without waiting."""
        command = [
            sys.executable, "-m", "tidegate.plugin.cli", "serve",
            "--data", str(self._data),
            "--socket", str(self._socket_path),
            "--http", self.url.removeprefix("http://"),
            "--log-format", "human",
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command,
                env={**environment, **_DAEMON_SETTINGS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def wait_ready(self, stop: Stop) -> None:
        """Return once ``/readyz`` answers 200. Raises ``DemoError`` if the process ends first."""
        with httpx.Client(base_url=self.url, timeout=2.0, trust_env=False) as client:
            stop.until(
                f"the daemon's start (its log: {self.log_path})",
                lambda: self._ready(client),
                _DAEMON_TIMEOUT_S,
            )

    def _ready(self, client: httpx.Client) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise DemoError(f"the daemon ended while starting; its log says why: {self.log_path}")
        with contextlib.suppress(httpx.HTTPError):
            return client.get("/readyz").status_code == httpx.codes.OK
        return False

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill -9 and wait for the process to be gone."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals, timeout_s: float = 10.0) -> None:
        """Signal it and wait; kill it if that takes longer than ``timeout_s``."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._guard.forget(process.pid)


class Broker:
    """Pulsar with the tracker under test."""

    def __init__(
        self,
        *,
        pulsar_home: Path,
        work_dir: Path,
        tracker: str,
        jar: Path | None,
        socket_path: Path,
        guard: Guard,
    ) -> None:
        factory = TRACKERS[tracker].factory
        key = "delayedDeliveryTrackerFactoryClassName"
        conf = tidegate_conf(socket_path) if factory is None else {key: factory}
        conf |= {
            "managedLedgerMaxUnackedRangesToPersist": "1000000",
            "managedLedgerPersistIndividualAckAsLongArray": "true",
        }
        classpath = []
        if jar is not None:
            # A copy: building the shim again must not change a jar that a running JVM has open.
            classpath.append(Path(shutil.copy2(jar, work_dir.parent)))
        self._broker = LocalBroker(
            pulsar_home,
            work_dir,
            conf=conf,
            extra_classpath=classpath,
            # The short-lived JVM never gets warm: compiling less halves its start.
            jvm_options=["-XX:TieredStopAtLevel=1"],
        )
        self._guard = guard
        self.service_url = self._broker.service_url
        self.admin_url = self._broker.admin_url
        self.log_path = self._broker.log_path

    def spawn(self) -> None:
        """Start it without waiting."""
        try:
            self._broker.spawn()
        except LocalBrokerError as error:
            raise DemoError(str(error)) from error
        self._guard.watch(self._broker.pid)

    def wait_healthy(self, stop: Stop) -> None:
        """Return once its health check passes. Raises ``DemoError`` if the process ends first."""
        with httpx.Client(base_url=self.admin_url, timeout=5.0, trust_env=False) as client:
            stop.until(
                f"the broker's start (its log: {self.log_path})",
                lambda: self._healthy(client),
                _BROKER_TIMEOUT_S,
            )

    def _healthy(self, client: httpx.Client) -> bool:
        if not self._broker.running:
            raise DemoError(f"the broker ended while starting; its log says why: {self.log_path}")
        with contextlib.suppress(httpx.HTTPError):
            return client.get("/admin/v2/brokers/health").text.strip() == "ok"
        return False

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._broker.running

    def kill(self) -> None:
        """Kill -9 and wait for the process to be gone."""
        try:
            pid = self._broker.pid
        except LocalBrokerError:
            return
        self._broker.kill()
        self._guard.forget(pid)
