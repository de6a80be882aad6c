"""The part of a topic that its new owner has read again: arithmetic of its counters, pure functions.

No counter shows it alone. Messages published or delivered meanwhile are read from BookKeeper, too, unless
still in the broker's cache: subtracting them may hide entries read again. So they are subtracted from a
reading soon after the first due message, when there are few, and from a second one at the end; entries given
to the daemon, which knows no cache, are a third count. The worst is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Reading(NamedTuple):
    """An owner's counters since it has had the topic, or since the fault, if it still has the topic.

    read: entries from BookKeeper. added: entries given to its daemon, None without one. stored, delivered:
    messages published and delivered meanwhile.
    """

    read: int
    added: int | None
    stored: int
    delivered: int

    @property
    def again(self) -> int:
        """Entries read again, by the larger count; negative if the cache had the new ones."""
        from_storage = self.read - self.stored - self.delivered
        return from_storage if self.added is None else max(from_storage, self.added - self.stored)


class Given(NamedTuple):
    """The number of entries given to one run of a daemon since its start; ``run`` is its process id."""

    run: int
    entries: int


def read_again(readings: Sequence[Reading]) -> int:
    """Entries read again by the worst of the readings."""
    return max(0, *(one.again for one in readings))


def given_since(before: Mapping[str, Given], name: str, now: Given) -> int:
    """The entries given to the daemon ``name`` since then. A daemon started meanwhile began with nothing."""
    former = before.get(name)
    return now.entries - (former.entries if former is not None and former.run == now.run else 0)
