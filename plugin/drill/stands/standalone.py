"""One broker of this machine and its daemon: enough for most drills.

Invariant: everything started here has ended when ``end`` returns; with a guard, even if this process is
killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.plugin.drill.fault import FaultError, Need, Part
from tidegate.plugin.drill.stands.admin import StandAdmin
from tidegate.plugin.drill.stands.clock import ClockError, SetClock, build_clock
from tidegate.plugin.drill.stands.daemons import DAEMON_SETTINGS, status_of, wait_for_broker
from tidegate.plugin.drill.stands.local_part import LocalPart
from tidegate.plugin.drill.stands.small_disk import SmallDisk, SmallDiskError
from tidegate.plugin.drill.stands.trackers import broker_conf, is_ours
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.counters import entries_read, telemetry_options
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import free_ports

_STOP_TIMEOUT_S = 10.0
_READ_AHEAD = "pulsar_delayed_tidegate_read_ahead_entries"
_DISK_BYTES = 128 * 2**20

NO_NEWER = {Need.NEWER: "run: tidegate setup --pulsar 5.0.1, or give --newer-pulsar-home"}
"""Why the need is not met."""


class _Broker(Broker):
    """A broker with a clock that can be set."""

    clock: SetClock | None = None

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        return command, environment | (self.clock.environment if self.clock is not None else {})


class _Daemon(Daemon):
    """A daemon with a clock that can be set, and optionally a small disk."""

    clock: SetClock | None = None
    disk: SmallDisk | None = None

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        prefix = self.disk.prefix if self.disk is not None else []
        return [*prefix, *command], environment | (self.clock.environment if self.clock is not None else {})


class Standalone:
    """A Pulsar standalone with ``tracker``, and for Tidegate's the daemon; ``jar`` is the shim.

    ``newer_home``: a Pulsar to which its broker can be upgraded. ``clocks``: both clocks can be set;
    ``small_disk``: the daemon's disk can be filled. Either only with this machine's support: ``lacking`` has
    the reason.
    """

    name = "standalone"
    token: str | None = None

    def __init__(
        self,
        tracker: str,
        pulsar_home: Path,
        jar: Path | None,
        work_dir: Path,
        socket_path: Path,
        *,
        guard: Guard,
        pause: Callable[[float], None],
        heap_mib: int = 768,
        newer_home: Path | None = None,
        clocks: bool = False,
        small_disk: bool = False,
    ) -> None:
        self.tracker = tracker
        self._own_home, self._newer_home = pulsar_home, newer_home
        self._work_dir = work_dir
        self._lacking: dict[Need, str] = {}
        self._pause = pause
        (self._telemetry_port,) = free_ports(1)
        self._daemon = (
            _Daemon(
                work_dir / "daemon",
                socket_path=socket_path,
                settings=DAEMON_SETTINGS,
                guard=guard,
                pause=pause,
            )
            if is_ours(tracker)
            else None
        )
        self._broker = _Broker(
            pulsar_home,
            work_dir / "broker",
            conf=broker_conf(tracker, socket_path),
            extra_classpath=[jar] if self._daemon is not None and jar is not None else [],
            heap_mib=heap_mib,
            direct_mib=heap_mib,
            # The short-lived JVM never gets warm: compiling less halves its start.
            jvm_options=["-XX:TieredStopAtLevel=1", *telemetry_options(self._telemetry_port)],
            guard=guard,
            pause=pause,
        )
        self._admin = StandAdmin(lambda: self._broker.admin_url)
        self._topic: str | None = None
        self._disk: SmallDisk | None = None
        self._clocks: dict[str, SetClock] = {}
        if clocks:
            self._set_up_clocks()
        if small_disk:
            self._set_up_disk()

    @property
    def offers(self) -> frozenset[Need]:
        """The faults possible here."""
        offered = {Need.BROKER, Need.ADMIN}
        if self._newer_home is not None:
            offered.add(Need.NEWER)
        if self._daemon is not None:
            offered |= {Need.DAEMON, Need.DATA, Need.PREVIOUS}
        if self._clocks:
            offered.add(Need.CLOCK)
        if self._disk is not None:
            offered.add(Need.DISK)
        return frozenset(offered)

    @property
    def lacking(self) -> dict[Need, str]:
        """The reasons why others are not."""
        lacking = self._lacking | NO_NEWER
        if self._daemon is None:
            why = f"the tracker {self.tracker} has no daemon"
            lacking |= dict.fromkeys((Need.DAEMON, Need.DATA, Need.PREVIOUS), why)
        return lacking

    def client_url(self, topic: str) -> str:  # noqa: ARG002
        """The broker's."""
        return self._broker.service_url

    def start(self) -> None:
        """Start daemon and broker."""
        self._broker.spawn()
        if self._daemon is not None:
            self._daemon.start()
        self._broker.wait_ready()

    def end(self) -> None:
        """End both."""
        self._broker.kill()
        if self._daemon is not None:
            self._daemon.stop(_STOP_TIMEOUT_S)
        if self._disk is not None:
            self._disk.close()
        for clock in self._clocks.values():
            clock.close()

    def part(self, name: str) -> Part:
        """``broker`` or ``daemon``."""
        if name == "broker":
            return LocalPart(self._broker, self._pause)
        if name == "daemon" and self._daemon is not None:
            return LocalPart(self._daemon, self._pause)
        raise FaultError(f"there is no {name} here, so nothing could be done to it")

    def move(self, topic: str) -> str:
        """There is no other broker."""
        raise FaultError(f"there is one broker only, so {topic} could not be moved")

    def rewind(self, topic: str, subscription: str) -> None:
        """By the admin interface."""
        self._admin.rewind(topic, subscription)

    def data_dir(self) -> Path:
        """The daemon's."""
        if self._daemon is None:
            raise FaultError(
                f"the tracker {self.tracker} has no data directory, so nothing could be done to it"
            )
        return self._daemon.data_dir

    def status(self) -> dict[str, Any] | None:
        """From the daemon, over HTTP."""
        return None if self._daemon is None else status_of(self._daemon)

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Through the file read by the process's preloaded clock."""
        if name not in self._clocks:
            raise FaultError(f"the clock of the {name} cannot be set here")
        self._clocks[name].set(ahead_s)

    def clock_ahead_s(self, name: str) -> float | None:
        """From the daemon's status and the date of the broker's answers."""
        if name == "daemon":
            status = self.status()
            return None if status is None else status["daemon"]["now_ms"] / 1000 - time.time()
        date = self._admin.date()
        return None if date is None else date - time.time()

    def fill_disk(self, *, full: bool) -> int:
        """With a file of zeros."""
        if self._disk is None:
            raise FaultError("the daemon's disk is no small one, and is not filled")
        if full:
            return self._disk.fill()
        self._disk.free()
        return 0

    def detach_all(self) -> str:
        """Impossible here."""
        raise FaultError("the brokers there are not detached by a drill")

    def attach(self, name: str) -> str:
        """Impossible here."""
        raise FaultError(f"the {name} there is not attached by a drill")

    def choose_pulsar(self, name: str, *, newer: bool) -> None:
        """The broker's home for its next start."""
        if name != "broker":
            raise FaultError(f"the {name} is no broker")
        self._broker.pulsar_home = home_for(self._own_home, self._newer_home, newer=newer)

    def pulsar_version(self, name: str) -> str | None:  # noqa: ARG002
        """The only broker's."""
        return self._admin.version()

    def topic(self, drill: str, number: int) -> str:
        """A new one for each round; the previous round's is deleted, with its messages due tomorrow."""
        if self._topic is not None:
            self._admin.delete(self._topic)
        self._topic = f"persistent://public/default/drill-{drill}-{number}"
        return self._topic

    def wait_usable(self, topic: str) -> None:  # noqa: ARG002
        """Return when the broker is connected to the daemon."""
        if self._daemon is not None:
            wait_for_broker(self._daemon, self._pause)

    def delayed(self, topic: str, subscription: str) -> int | None:
        """The broker's count."""
        return self._admin.delayed(topic, subscription)

    def release(self, topic: str, subscription: str) -> None:
        """Nothing: the topic goes with the next round, or with the broker."""

    def entries_read(self, topic: str) -> dict[str, int] | None:
        """The broker's count."""
        run = f"pid {self._broker.pid}"
        return counted_reads(run, self._telemetry_port, self._broker.admin_url, topic)

    def _set_up_clocks(self) -> None:
        try:
            library = build_clock(self._work_dir / "clock")
        except ClockError as error:
            self._lacking[Need.CLOCK] = str(error)
            return
        self._broker.clock = self._clocks["broker"] = SetClock(library, library.with_name("broker"))
        if self._daemon is not None:
            self._daemon.clock = self._clocks["daemon"] = SetClock(library, library.with_name("daemon"))

    def _set_up_disk(self) -> None:
        if self._daemon is None:
            return
        if os.geteuid() != 0:
            self._lacking[Need.DISK] = "this is not root"
            return
        try:
            self._disk = self._daemon.disk = SmallDisk(self._daemon.data_dir.parent / "disk", _DISK_BYTES)
        except (SmallDiskError, OSError) as error:
            self._lacking[Need.DISK] = str(error)
            return
        self._daemon.data_dir = self._daemon.data_dir.parent / "disk" / "index"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def home_for(own: Path, newer_home: Path | None, *, newer: bool) -> Path:
    """The chosen of two homes. Raises ``FaultError`` if it is missing."""
    if not newer:
        return own
    if newer_home is None:
        raise FaultError(f"there is no {Need.NEWER}: {NO_NEWER[Need.NEWER]}")
    return newer_home


def counted_reads(run: str, counters_port: int, admin_url: str, topic: str) -> dict[str, int]:
    """A topic's entries read from storage by one run of a broker, by its cursors and ahead of them."""
    counts = {run: entries_read(counters_port, topic.rpartition("/")[2])}
    ahead = StandAdmin(lambda: admin_url).gauge(_READ_AHEAD, topic)
    return counts if ahead is None else counts | {f"{run}, ahead": ahead}
