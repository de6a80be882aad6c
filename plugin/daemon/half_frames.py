"""The bytes of incomplete frames on all connections together.

Invariant: they are at most ``MAX_BYTES`` and one read. More ends the connection that has waited longest for
the rest of its frame: a live peer sends it within milliseconds. Brokers are ended last, because they would
come back with the same frame. O(connections with half a frame) for each ended one, else O(1).
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

MAX_BYTES = 128 * 1024 * 1024


class Receiving(Protocol):
    """A connection, as this module sees it."""

    @property
    def is_broker(self) -> bool:
        """True if the client has said that it is a broker."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=Receiving)


class HalfFrames(Generic[ConnectionT]):
    """The bytes of an incomplete frame on each connection."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sizes: dict[ConnectionT, int] = {}  # in the order in which their frames began

    def note_half_frame(
        self, connection: ConnectionT, size_bytes: int, *, is_same: bool
    ) -> ConnectionT | None:
        """Note that a connection now has ``size_bytes`` of a frame: the same one as before, or another.

        Returns the connection to end, if any; its bytes no longer count.
        """
        before = self._sizes.get(connection, 0) if is_same else self._sizes.pop(connection, 0)
        if size_bytes:
            self._sizes[connection] = size_bytes
        else:
            self._sizes.pop(connection, None)
        self.size_bytes += size_bytes - before
        if self.size_bytes <= MAX_BYTES:
            return None
        brokers_last = sorted(self._sizes, key=lambda each: each.is_broker)
        self.forget(brokers_last[0])
        return brokers_last[0]

    def forget(self, connection: ConnectionT) -> None:
        """Forget a connection that is over, with its bytes."""
        self.size_bytes -= self._sizes.pop(connection, 0)
