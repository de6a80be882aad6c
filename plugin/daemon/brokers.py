"""The connected brokers, by their own names.

Invariants: a name has one connection; a newer one ends the older, after applying the older one's data; the
memory of past clients is bounded, whatever their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.plugin.daemon.descriptors import BROKERS_MAX
from tidegate.plugin.daemon.stream import Link
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.messages import NAME_BYTES_MAX, Hello

if TYPE_CHECKING:
    import structlog

REMEMBERED_MAX = 4 * BROKERS_MAX


class Brokers:
    """The connected brokers, and the past ones."""

    def __init__(self, metrics: Metrics, log: structlog.typing.FilteringBoundLogger) -> None:
        self._metrics = metrics
        self._log = log
        self._connected: dict[str, Link] = {}
        self._remembered: dict[str, None] = {}

    @property
    def connected(self) -> Mapping[str, Link]:
        """The connections by name."""
        return self._connected

    def greet(self, connection: Link, hello: Hello) -> None:
        """Note a broker's HELLO. Raises ``ProtocolError`` for a bad name, or for too many brokers."""
        if len(hello.name.encode()) > NAME_BYTES_MAX or len(hello.product.encode()) > NAME_BYTES_MAX:
            raise ProtocolError(ErrorCode.MALFORMED, f"HELLO has a name of more than {NAME_BYTES_MAX} bytes")
        previous = self._connected.get(hello.name)
        if previous is None and len(self._connected) >= BROKERS_MAX:
            raise ProtocolError(ErrorCode.BUSY, f"{BROKERS_MAX} brokers are connected, the maximum")
        self._connected[hello.name] = connection
        if previous is not None:
            self._log.warning("broker connected again, its old connection is closed", broker=hello.name)
            previous.read_rest()
            previous.fail(ErrorCode.STALE_EPOCH, f"a newer connection of {hello.name} has taken over")
        self._remember(hello.name)
        self._log.info("broker connected", broker=hello.name, product=hello.product)

    def _remember(self, name: str) -> None:
        if name in self._remembered:
            self._metrics.reconnects.inc()
            del self._remembered[name]
        self._remembered[name] = None
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]

    def gone(self, connection: Link, unclosed: int) -> None:
        """Note the end of a connection, a broker's or not; the peer left ``unclosed`` streams."""
        name = connection.peer_name
        if self._connected.get(name) is connection:
            del self._connected[name]
            if unclosed:
                self._log.warning("broker disconnected", broker=name, unclosed_streams=unclosed)
            else:
                self._log.info("broker disconnected", broker=name)
