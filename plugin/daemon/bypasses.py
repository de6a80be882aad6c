"""Dispatchers that bypass Tidegate at the connected brokers: another tracker has their delayed messages.

Each report of a broker has all of them. Invariants: the daemon is not ready during any bypass; memory is
bounded (``BYPASSED_MAX`` dispatchers by name for each broker, the others counted); a closed connection leaves
nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.plugin.daemon.stream import Link
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.wire.messages import Bypassed, BypassedDispatcher

if TYPE_CHECKING:
    import structlog

_REASON = "bypassed"
_SAID_MAX = 3


class Bypasses:
    """The latest report of each connection's broker."""

    def __init__(self, health: Health, log: structlog.typing.FilteringBoundLogger) -> None:
        self._health = health
        self._log = log
        self._told: dict[Link, Bypassed] = {}

    @property
    def dispatchers(self) -> int:
        """The number of dispatchers at all brokers, the nameless included."""
        return sum(one.dispatchers for one in self._told.values())

    def named(self) -> Iterator[tuple[str, BypassedDispatcher]]:
        """The dispatchers known by name, each with its broker's name."""
        for connection, told in self._told.items():
            for one in told.named:
                yield connection.peer_name, one

    def tell(self, connection: Link, told: Bypassed) -> None:
        """Note the dispatchers that bypass Tidegate now, as a broker names them."""
        before = self._told.pop(connection, Bypassed(0))
        if told.dispatchers:
            self._told[connection] = told
        known = {(one.topic, one.subscription) for one in before.named}
        for one in told.named:
            if (one.topic, one.subscription) not in known:
                self._log.error(
                    "BYPASSED: delayed messages that Tidegate does not have",
                    broker=connection.peer_name,
                    topic=one.topic,
                    subscription=one.subscription,
                    delayed=one.delayed,
                    reason=one.reason,
                )
        if before.dispatchers and not told.dispatchers:
            self._log.info("nothing bypasses Tidegate any more", broker=connection.peer_name)
        self._judge()

    def gone(self, connection: Link) -> None:
        """Note the end of a connection, a broker's or not."""
        if self._told.pop(connection, None) is not None:
            self._judge()

    def _judge(self) -> None:
        count = self.dispatchers
        if not count:
            self._health.clear(_REASON)
            return
        said = [
            f"{one.topic}:{one.subscription} at {broker}: {one.reason}"
            for (broker, one), _ in zip(self.named(), range(_SAID_MAX), strict=False)
        ]
        if count > len(said):
            said.append(f"and {count - len(said)} more")
        self._health.block(
            _REASON,
            f"BYPASSED: {count} dispatchers have delayed messages that Tidegate does not have: "
            f"{'; '.join(said)}; restart that broker with this Tidegate's shim, or see its log",
        )
