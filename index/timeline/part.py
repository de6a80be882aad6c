"""Entries in memory, with the bounds of their due times, as a tide counts them."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index.entries.entry import Entries


class Part(NamedTuple):
    """Entries in memory; first_ms, last_ms: bounds of their due times, None if unknown."""

    entries: Entries
    first_ms: int | None = None
    last_ms: int | None = None
    is_sorted: bool = False

    @classmethod
    def of_sorted(cls, entries: Entries) -> Part:
        """Of sorted entries, at least one."""
        times_ms = entries.deliver_at_ms
        return cls(entries, int(times_ms[0]), int(times_ms[-1]), True)
