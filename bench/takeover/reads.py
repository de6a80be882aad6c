"""How much of a topic its new owner has read again: arithmetic of its counters, pure functions.

No counter tells it alone. What is published or delivered meanwhile is read from BookKeeper, too, but not if
the broker still had it in its cache: taken off all the same, it hides as many entries that were read again.
So it is taken off a reading soon after the first due message, when there is little of it, and off a second
one when all has been read, and what the daemon was given, which knows of no cache, is a third count. The
worst one is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Reading(NamedTuple):
    """An owner's counters since it has had the topic, or since the fault, if it has the topic still.

    read: entries from BookKeeper. added: entries that its daemon was given, None where there is no daemon.
    stored: messages published meanwhile. delivered: those delivered meanwhile.
    """

    read: int
    added: int | None
    stored: int
    delivered: int

    @property
    def again(self) -> int:
        """Entries read again, by the count that says more; negative if the cache had what was new."""
        from_storage = self.read - self.stored - self.delivered
        return from_storage if self.added is None else max(from_storage, self.added - self.stored)


class Given(NamedTuple):
    """How many entries one run of a daemon was given since its start; ``run`` is its process id."""

    run: int
    entries: int


def read_again(readings: Sequence[Reading]) -> int:
    """Entries read again by the worst of the readings."""
    return max(0, *(one.again for one in readings))


def given_since(before: Mapping[str, Given], name: str, now: Given) -> int:
    """What the daemon ``name`` was given since then. One that was started meanwhile began with nothing."""
    former = before.get(name)
    return now.entries - (former.entries if former is not None and former.run == now.run else 0)
