"""One broker of this machine, and the daemon beside it: what most drills need.

Invariant: everything started here has ended when ``end`` returns; with a guard also if this process is
killed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tidegate.plugin.drill.fault import FaultError, Need, Part
from tidegate.plugin.drill.stands.admin import StandAdmin
from tidegate.plugin.drill.stands.local_part import LocalPart
from tidegate.plugin.drill.stands.trackers import broker_conf
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.counters import entries_read, telemetry_options
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import free_ports

_USABLE_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
# So small that a drill of a few thousand messages goes through several slices, on disk and in memory.
DAEMON_SETTINGS = {"slice_width_ms": "10000", "staging_bytes": "524288", "heartbeat_ms": "1000"}


class Standalone:
    """A Pulsar standalone with ``tracker``, and for Tidegate's the daemon; ``jar`` is the shim."""

    name = "standalone"

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
    ) -> None:
        self.tracker = tracker
        self._pause = pause
        (self._telemetry_port,) = free_ports(1)
        self._daemon = (
            Daemon(
                work_dir / "daemon",
                socket_path=socket_path,
                settings=DAEMON_SETTINGS,
                guard=guard,
                pause=pause,
            )
            if tracker == "tidegate"
            else None
        )
        self._broker = Broker(
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

    @property
    def offers(self) -> frozenset[Need]:
        """What can be done here."""
        offered = {Need.BROKER, Need.ADMIN}
        if self._daemon is not None:
            offered |= {Need.DAEMON, Need.DATA}
        return frozenset(offered)

    @property
    def lacking(self) -> dict[Need, str]:
        """Why something cannot."""
        if self._daemon is None:
            return dict.fromkeys((Need.DAEMON, Need.DATA), f"the tracker {self.tracker} has no daemon")
        return {}

    @property
    def service_url(self) -> str:
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
        self._admin.close()

    def part(self, name: str) -> Part:
        """``broker`` or ``daemon``."""
        if name == "broker":
            return LocalPart(self._broker, self._pause)
        if name == "daemon" and self._daemon is not None:
            return LocalPart(self._daemon, self._pause)
        raise FaultError(f"there is no {name} here, so nothing could be done to it")

    def data_dir(self) -> Path:
        """The daemon's."""
        if self._daemon is None:
            raise FaultError(
                f"the tracker {self.tracker} has no data directory, so nothing could be done to it"
            )
        return self._daemon.data_dir

    def topic(self, drill: str, number: int) -> str:
        """One of its own for each round."""
        return f"persistent://public/default/drill-{drill}-{number}"

    def wait_usable(self, topic: str) -> None:  # noqa: ARG002
        """Return when the broker is connected to the daemon."""
        if self._daemon is not None:
            wait_for_broker(self._daemon, self._pause)

    def delayed(self, topic: str, subscription: str) -> int | None:
        """As the broker counts them."""
        return self._admin.delayed(topic, subscription)

    def entries_read(self, topic: str) -> int | None:
        """As the broker counts them."""
        return entries_read(self._telemetry_port, topic.rpartition("/")[2])

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


def wait_for_broker(daemon: Daemon, pause: Callable[[float], None]) -> None:
    """Return when a broker is connected to the daemon. Raises ``UserError``."""
    waited_s = 0.0
    with httpx.Client(base_url=daemon.url, timeout=2.0, trust_env=False) as client:
        while waited_s < _USABLE_TIMEOUT_S:
            try:
                answer = client.get("/status")
                if answer.is_success and answer.json()["brokers"]:
                    return
            except (httpx.HTTPError, ValueError, KeyError):
                pass
            pause(_POLL_S)
            waited_s += _POLL_S
    raise UserError(
        f"no broker was connected to the daemon within {_USABLE_TIMEOUT_S:.0f} s; see {daemon.log_path}"
    )
