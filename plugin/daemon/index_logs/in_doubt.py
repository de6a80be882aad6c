"""Pointers to index logs on their way when their stream ended.

Invariant: at most ``INDEXES_MAX`` indexes have some; beyond that all are forgotten, and such a log stands
still until its next stream.
"""

from __future__ import annotations

from tidegate.index import Identity
from tidegate.index.log import Pointer

INDEXES_MAX = 10_000


class InDoubt:
    """The pointers, by index."""

    def __init__(self) -> None:
        self._pointers: dict[Identity, tuple[Pointer, ...]] = {}

    def note(self, identity: Identity, pointers: tuple[Pointer, ...]) -> None:
        """Keep the pointers of an index for its next stream."""
        if len(self._pointers) >= INDEXES_MAX:
            self._pointers.clear()
        self._pointers[identity] = pointers

    def pop(self, identity: Identity, text: str, home: str) -> list[Pointer]:
        """The pointers to a home that may still replace ``text`` in the cursor; forgets them."""
        found = [each for each in self._pointers.pop(identity, ()) if each.home == home]
        return [] if any(str(each) == text for each in found) else found
