"""One daemon and one real Pulsar broker on loopback, started once a test session.

``TIDEGATE_TEST_TRACKER`` chooses what is tested: ``tidegate`` (default) starts daemon and shim; ``pulsar``
and ``bucket`` run the same tests against Pulsar's own trackers, which shows what is Pulsar's behaviour and
what is ours. ``TIDEGATE_TEST_SHIM_JAR`` and ``TIDEGATE_TEST_PULSAR_HOME`` name another jar or distribution.
Only processes started here are signalled, by their pid.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pulsar

from tests.support.admin import Admin
from tests.support.waiting import wait_until
from tidegate.plugin.local.broker import LocalBroker, tidegate_conf
from tidegate.plugin.wire.client import ask_socket

ROOT = Path(__file__).resolve().parents[2]
PULSAR_HOME = Path(
    os.environ.get("TIDEGATE_TEST_PULSAR_HOME", ROOT / ".cache" / "pulsar" / "apache-pulsar-4.0.8")
)
SHIM_JAR = Path(
    os.environ.get("TIDEGATE_TEST_SHIM_JAR", ROOT / "plugin" / "jars" / "tidegate-pulsar-shim.jar")
)
RETAINED = "public/retained"
SUBSCRIBED = "public/default"

# What an operator is advised to set, and small values that make rare things happen within a short test.
_CONF = {
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "managedLedgerMaxUnackedRangesToPersist": "1000000",
    "managedLedgerPersistIndividualAckAsLongArray": "true",
    "managedLedgerMaxEntriesPerLedger": "400",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "messageExpiryCheckIntervalInMinutes": "1",
    "brokerShutdownTimeoutMs": "5000",
    "metadataStoreSessionTimeoutMillis": "5000",
}
# How long the shim waits for a daemon that is not there; short, since a test waits for its end.
_DAEMON_WAIT_MS = 5000
_REGISTERED_AGAIN = b"Successfully revalidated the lock on /ledgers/available/"
_REGISTERED_AGAIN_MAX = 3
# A connection on which nothing comes for three of these is given up.
_HEARTBEAT_MS = 1000


class TrackerKind(enum.StrEnum):
    """Which delayed delivery tracker the broker runs."""

    TIDEGATE = "tidegate"
    PULSAR = "pulsar"
    BUCKET = "bucket"

    @classmethod
    def chosen(cls) -> TrackerKind:
        """What ``TIDEGATE_TEST_TRACKER`` says."""
        name = os.environ.get("TIDEGATE_TEST_TRACKER", cls.TIDEGATE)
        try:
            return cls(name)
        except ValueError:
            names = ", ".join(cls)
            raise MissingPartError(f"TIDEGATE_TEST_TRACKER={name}: choose one of {names}") from None

    @property
    def strict(self) -> bool:
        """Whether nothing may come early; Pulsar's own trackers may be early by one tick."""
        return self is TrackerKind.TIDEGATE


class MissingPartError(Exception):
    """Something that the tests need is not on this machine; the message says what to do."""


def check_parts(kind: TrackerKind) -> None:
    """Raise :class:`MissingPartError` unless Java, the distribution and (for tidegate) the jar are there."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise MissingPartError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
    if not (PULSAR_HOME / "bin" / "pulsar").is_file():
        raise MissingPartError(f"no Pulsar distribution in {PULSAR_HOME}: run `make test`, which fetches it")
    if kind is TrackerKind.TIDEGATE and not SHIM_JAR.is_file():
        raise MissingPartError(f"no shim in {SHIM_JAR}: run `make test`, which builds it")


class Daemon:
    """``tidegate serve`` as a process of its own."""

    def __init__(self, work_dir: Path, socket_path: Path) -> None:
        self.data_dir = work_dir / "daemon"
        self.log_path = work_dir / "daemon.log"
        self.socket_path = socket_path
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether the process started here is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise RuntimeError("the daemon does not run")
        return self._process.pid

    def held(self, topic: str) -> dict[str, int]:
        """How many positions each subscription's index holds of ``topic``; a forgotten one is not there."""
        status = ask_socket(self.socket_path, {"what": "status"})
        assert not status["subscriptions_omitted"]
        full_name = f"persistent://{topic}"
        return {
            one["subscription"]: one["held"] for one in status["subscriptions"] if one["topic"] == full_name
        }

    def start(self) -> None:
        """Start and wait until the socket accepts a connection."""
        command = [
            sys.executable, "-m", "tidegate.plugin.cli", "serve",
            "--data", str(self.data_dir), "--socket", str(self.socket_path), "--http", "127.0.0.1:0",
        ]  # fmt: skip
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "TIDEGATE_HEARTBEAT_MS": str(_HEARTBEAT_MS)},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self._accepts, f"the daemon's socket answers (log: {self.log_path})", timeout_s=30.0)

    def kill(self) -> None:
        """Kill -9 and wait for the process to be gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop gracefully; the exit code."""
        return self._end(signal.SIGTERM)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process (SIGSTOP) for the time of the block: it hangs, its socket stays open."""
        if self._process is None:
            raise RuntimeError("the daemon does not run")
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Remove the data directory of a stopped daemon."""
        if self.running:
            raise RuntimeError("stop the daemon before its data is removed")
        shutil.rmtree(self.data_dir)

    def _end(self, how: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        process.send_signal(how)
        try:
            code = process.wait(20.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10.0)
            raise
        self._process = None
        return code

    def _accepts(self) -> bool:
        if not self.running:
            raise RuntimeError(f"the daemon ended while starting; its log says why: {self.log_path}")
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(self.socket_path))
            return True
        return False


class Cluster:
    """The daemon (tidegate only) and the broker of a session."""

    def __init__(self, kind: TrackerKind, work_dir: Path, socket_path: Path) -> None:
        self.kind = kind
        self.work_dir = work_dir
        self._daemon = Daemon(work_dir, socket_path) if kind is TrackerKind.TIDEGATE else None
        conf = dict(_CONF)
        match kind:
            case TrackerKind.TIDEGATE:
                conf |= tidegate_conf(socket_path, tidegateDaemonWaitMillis=str(_DAEMON_WAIT_MS))
            case TrackerKind.BUCKET:
                conf["delayedDeliveryTrackerFactoryClassName"] = (
                    "org.apache.pulsar.broker.delayed.BucketDelayedDeliveryTrackerFactory"
                )
            case TrackerKind.PULSAR:
                pass
        classpath: list[Path] = []
        if kind is TrackerKind.TIDEGATE:
            # A copy: building the shim anew while the broker runs would break the JVM's open jar.
            classpath = [Path(shutil.copy(SHIM_JAR, work_dir))]
        self.broker = LocalBroker(PULSAR_HOME, work_dir / "broker", conf=conf, extra_classpath=classpath)
        self.admin = Admin(self.broker.admin_url)

    @property
    def client_log_path(self) -> Path:
        """The warnings of every client of this process: the C++ library has one logger for all."""
        return self.work_dir / "client.log"

    @property
    def daemon(self) -> Daemon:
        """The daemon; only with the tidegate tracker."""
        if self._daemon is None:
            raise RuntimeError(f"the {self.kind} tracker has no daemon")
        return self._daemon

    def start(self) -> None:
        """Start daemon and broker, and make the namespaces."""
        if self._daemon is not None:
            self._daemon.start()
        self.start_broker()
        self.admin.create_namespace(RETAINED)
        self.admin.set_retention(RETAINED, minutes=-1, size_mib=-1)

    def repair(self) -> None:
        """Start what a test has stopped."""
        if self._daemon is not None and not self._daemon.running:
            self._daemon.start()
        if not self.broker.running:
            self.start_broker()

    def start_broker(self) -> None:
        """Start the broker, again if need be.

        After a kill -9 the bookie's registration of before is still in the metadata. Pulsar removes it and
        registers anew; when the notice of the removal comes late, it takes it for a loss, removes and
        registers again, and so on for ever (4.0.8, ``ResourceLockImpl``): the bookie comes and goes many
        times a second. A graceful restart ends that.
        """
        log_path = self.broker.log_path
        seen_bytes = log_path.stat().st_size if log_path.exists() else 0
        self.broker.start()
        with log_path.open("rb") as log:
            log.seek(seen_bytes)
            if log.read().count(_REGISTERED_AGAIN) >= _REGISTERED_AGAIN_MAX:
                self.broker.stop()
                self.broker.start()

    def end(self) -> None:
        """End both; the logs stay."""
        self.admin.close()
        self.broker.kill()
        if self._daemon is not None:
            self._daemon.kill()

    @contextlib.contextmanager
    def client(self) -> Iterator[pulsar.Client]:
        """A client of its own, closed at the end; its log goes to a file."""
        client = pulsar.Client(
            self.broker.service_url,
            operation_timeout_seconds=30,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.client_log_path)),
        )
        try:
            yield client
        finally:
            # Closing waits for a broker that is there, so that acknowledgements still get to it.
            if self.broker.running:
                client.close()
            else:
                client.shutdown()
