"""One daemon and one real Pulsar broker on loopback, started once a test session.

``TIDEGATE_TEST_TRACKER``: ``tidegate`` (default) starts daemon and shim; ``pulsar`` and ``bucket`` run the
same tests with Pulsar's own trackers, which separates Pulsar's behaviour from ours.
``TIDEGATE_TEST_SHIM_JAR`` and ``TIDEGATE_TEST_PULSAR_HOME`` name another jar or distribution. Signals go only
to processes started here, by their pid.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pulsar

from tests.support.admin import Admin
from tests.support.servlets import servlet_conf
from tidegate.plugin.local.assembled import VARIABLE, pulsar_home
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.distribution import PULSAR
from tidegate.plugin.local.shim import SHIM_JAR as BUILT_JAR
from tidegate.plugin.local.trackers import BUCKET_FACTORY, FACTORY_KEY, tidegate_conf
from tidegate.plugin.wire.client import ask_socket

PULSAR_HOME = Path(os.environ.get("TIDEGATE_TEST_PULSAR_HOME") or pulsar_home(os.environ))
SHIM_JAR = Path(os.environ.get("TIDEGATE_TEST_SHIM_JAR") or BUILT_JAR)
PULSAR_VERSION = os.environ.get(VARIABLE) or PULSAR.version
PULSAR_MAJOR = int(PULSAR_VERSION.partition(".")[0])
"""The first number of the version under test."""
RETAINED = "public/retained"
SUBSCRIBED = "public/default"
OPERATION_TIMEOUT_S = 60
"""Longer than a broker takes to load a topic while other tests have both cores."""

# Recommended settings, and small values that make rare things happen within a short test.
_CONF = {
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "managedLedgerMaxUnackedRangesToPersist": "1000000",
    "managedLedgerPersistIndividualAckAsLongArray": "true",
    "managedLedgerMaxEntriesPerLedger": "400",
    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
    "messageExpiryCheckIntervalInMinutes": "1",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "brokerShutdownTimeoutMs": "5000",
    "metadataStoreSessionTimeoutMillis": "5000",
}
# How long the shim waits for an absent daemon; short, since a test waits for its end.
_DAEMON_WAIT_MS = 5000
_REGISTERED_AGAIN = b"Successfully revalidated the lock on /ledgers/available/"
_REGISTERED_AGAIN_MAX = 3
# A connection silent for three of these is abandoned.
_DAEMON_SETTINGS = {"heartbeat_ms": "1000"}


class TrackerKind(enum.StrEnum):
    """The broker's delayed delivery tracker."""

    TIDEGATE = "tidegate"
    PULSAR = "pulsar"
    BUCKET = "bucket"

    @classmethod
    def chosen(cls) -> TrackerKind:
        """The tracker of ``TIDEGATE_TEST_TRACKER``."""
        name = os.environ.get("TIDEGATE_TEST_TRACKER", cls.TIDEGATE)
        try:
            return cls(name)
        except ValueError:
            names = ", ".join(cls)
            raise MissingPartError(f"TIDEGATE_TEST_TRACKER={name}: choose one of {names}") from None

    @property
    def strict(self) -> bool:
        """True if nothing may come early; Pulsar's own trackers may be early by one tick."""
        return self is TrackerKind.TIDEGATE


class MissingPartError(Exception):
    """A part that the tests need is missing on this machine; the message has the remedy."""


def check_parts(kind: TrackerKind) -> None:
    """Raise :class:`MissingPartError` unless Java, the distribution and (for tidegate) the jar are there."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise MissingPartError("no java found: install a JDK 17 or newer, or set JAVA_HOME")
    if not (PULSAR_HOME / "bin" / "pulsar").is_file():
        raise MissingPartError(f"no Pulsar distribution in {PULSAR_HOME}: run `make test`, which fetches it")
    if kind is TrackerKind.TIDEGATE and not SHIM_JAR.is_file():
        raise MissingPartError(f"no shim in {SHIM_JAR}: run `make test`, which builds it")


def daemon_of(work_dir: Path, socket_path: Path) -> Daemon:
    """A daemon that soon gives up a silent connection: tests wait for that."""
    return Daemon(work_dir / "daemon", socket_path=socket_path, settings=_DAEMON_SETTINGS)


class Cluster:
    """A session's daemon (tidegate only) and broker."""

    def __init__(
        self,
        kind: TrackerKind,
        work_dir: Path,
        socket_path: Path,
        *,
        index_log: str = "none",
        conf: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kind = kind
        self.work_dir = work_dir
        self._daemon = daemon_of(work_dir, socket_path) if kind is TrackerKind.TIDEGATE else None
        conf = {**_CONF, **conf}
        match kind:
            case TrackerKind.TIDEGATE:
                conf |= tidegate_conf(
                    socket_path,
                    tidegateDaemonWaitMillis=str(_DAEMON_WAIT_MS),
                    tidegateIndexLog=index_log,
                    **servlet_conf(work_dir / "servlets"),
                )
            case TrackerKind.BUCKET:
                conf[FACTORY_KEY] = BUCKET_FACTORY
            case TrackerKind.PULSAR:
                pass
        classpath = [SHIM_JAR] if kind is TrackerKind.TIDEGATE else []
        self.broker = Broker(PULSAR_HOME, work_dir / "broker", conf=conf, extra_classpath=classpath)
        self.admin = Admin(self.broker.admin_url)

    @property
    def running(self) -> bool:
        return self.broker.running

    @property
    def service_url(self) -> str:
        """The URL for clients."""
        return self.broker.service_url

    @property
    def client_log_path(self) -> Path:
        """The warnings of all clients of this process: the C++ library has one logger."""
        return self.work_dir / "client.log"

    @property
    def daemon(self) -> Daemon:
        """Only with the tidegate tracker."""
        if self._daemon is None:
            raise RuntimeError(f"the {self.kind} tracker has no daemon")
        return self._daemon

    def held(self, topic: str) -> dict[str, int]:
        """Positions of ``topic`` held by each subscription's index; a forgotten index is missing."""
        return self._of_status(topic, "held")

    def acknowledged(self, topic: str) -> dict[str, int]:
        """Positions that each subscription's index knows acknowledged above the mark-delete position."""
        return self._of_status(topic, "acknowledged")

    def told_lost(self, topic: str) -> int:
        """Positions that the shim has reported as no longer held by the daemon, and read again."""
        said = rf"\[[^]]*{re.escape(topic)}\b.* The daemon no longer holds (\d+) positions: they are read"
        return sum(map(int, re.findall(said, self._log())))

    def log_has(self, pattern: str) -> bool:
        """True if a line of the broker's log matches."""
        return re.search(pattern, self._log()) is not None

    def _log(self) -> str:
        return self.broker.log_path.read_text(encoding="utf-8", errors="replace")

    def _of_status(self, topic: str, field: str) -> dict[str, int]:
        status = ask_socket(self.daemon.socket_path, {"what": "status"})
        assert not status["subscriptions_omitted"]
        full_name = f"persistent://{topic}"
        return {
            one["subscription"]: one[field] for one in status["subscriptions"] if one["topic"] == full_name
        }

    def start(self) -> None:
        """Start daemon and broker, and make the namespaces."""
        if self._daemon is not None:
            self._daemon.start()
        self.start_broker()
        self.admin.create_namespace(RETAINED)
        self.admin.set_retention(RETAINED, minutes=-1, size_mib=-1)

    def repair(self) -> None:
        """Start processes stopped by a test, and a failed broker: one test fails, not all."""
        if self._daemon is not None and not self._daemon.running:
            self._daemon.start()
        if self.broker.lacks() is not None:
            self.broker.kill()
            self.start_broker()

    def start_broker(self) -> None:
        """Start the broker, again if need be.

        After a kill -9 Pulsar removes the bookie's former registration and registers anew; if the notice of
        the removal comes late, it repeats both for ever (4.0.8, ``ResourceLockImpl``): the bookie comes and
        goes many times a second. A graceful restart ends that.
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
        """A new client, closed at the end; its log goes to a file."""
        client = pulsar.Client(
            self.broker.service_url,
            operation_timeout_seconds=OPERATION_TIMEOUT_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self.client_log_path)),
        )
        try:
            yield client
        finally:
            # Closing waits for a present broker, so that acknowledgements still reach it.
            if self.broker.running:
                client.close()
            else:
                client.shutdown()
