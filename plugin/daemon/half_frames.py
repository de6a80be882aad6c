"""The bytes of incomplete frames on all connections together.

Invariant: they are at most ``MAX_BYTES`` and one read. More ends the connection that has waited longest for
the rest of its frame, brokers last, because they would come back with the same frame. O(connections with half
a frame) for each ended one, else O(1).
"""

from __future__ import annotations

from typing import Protocol

MAX_BYTES = 128 * 1024 * 1024


class Receiving(Protocol):
    """A connection, as this module sees it."""

    @property
    def is_broker(self) -> bool:
        """True if the client has said that it is a broker."""
        ...

    def give_back(self, why: str) -> None:
        """End the connection, so that others can receive."""
        ...


class HalfFrames:
    """The bytes of an incomplete frame on each connection."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sizes: dict[Receiving, int] = {}  # in the order in which their frames began

    def note_half_frame(self, connection: Receiving, size_bytes: int, *, is_same: bool) -> None:
        """Note that a connection now has ``size_bytes`` of a frame: the same one as before, or another."""
        before = self._sizes.get(connection, 0) if is_same else self._sizes.pop(connection, 0)
        if size_bytes:
            self._sizes[connection] = size_bytes
        else:
            self._sizes.pop(connection, None)
        self.size_bytes += size_bytes - before
        if self.size_bytes > MAX_BYTES:
            ended = min(self._sizes, key=lambda each: each.is_broker)  # a broker last, else the oldest frame
            self.forget(ended)
            ended.give_back("too many bytes are half received, and this connection has waited longest")

    def forget(self, connection: Receiving) -> None:
        """Forget a connection that is over, with its bytes."""
        self.size_bytes -= self._sizes.pop(connection, 0)
