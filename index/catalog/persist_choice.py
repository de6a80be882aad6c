"""Chooses the next index of a catalog to persist. Called by the core's thread only.

Reasons, the strongest first: too many entries or journal bytes of all indexes together; an index wants more
than spilling; a change has waited for `persist_age_ms`; changes pause, and a longer journal can be shortened.

Invariants: the first look after background work counts the staged entries anew; asking is O(1), for any
number of indexes, while no reason can have come up since the last look.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.index.entries.entry import ENTRY_BYTES
from tidegate.index.names import SubscriptionName
from tidegate.index.subscription.context import Context
from tidegate.index.subscription.delay_index import DelayIndex

SHORT_JOURNAL_BYTES = 1 << 20
"""A shorter journal needs no shortening."""

_RECORDS_EACH = 16
"""A persist for fewer records costs more than it saves the next opening."""

_QUIET_NS = 2_000_000_000
"""After so long without a change to any index, longer journals are shortened, too."""


class PersistChoice:
    """Looks at one catalog's indexes, and counts their staged entries."""

    def __init__(self, context: Context[DelayIndex], indexes: Mapping[SubscriptionName, DelayIndex]) -> None:
        self._context = context
        self._clock = context.clock
        self._options = context.options
        self._indexes = indexes
        self._staged_entries = 0
        """Staged entries at the last look, without those taken by persists since."""
        self._looked_at_ms: int | None = None
        """Time of the last look, if no index wanted a persist; None if a new look is due."""
        self._old_at_ms = 0
        """When the oldest change found then is old enough. Later ones are younger."""
        self._quiet_token: int | None = None
        """The token at the last look, if the indexes were quiet."""
        self._told_token = 0
        self._told_ns = context.clock.monotonic_ns()
        """Time of the last change seen in any index."""

    # ---- the staging

    @property
    def staged_entries(self) -> int:
        """Entries staged by all indexes. O(1); slightly too high if some were acknowledged."""
        return self._staged_entries + self._context.added_entries

    def taken(self, entries: int) -> None:
        """Note that a persist has taken so many staged entries."""
        self._staged_entries -= entries

    def given_back(self, entries: int) -> None:
        """Note that a persist has failed, and so many entries are staged again."""
        self._staged_entries += entries

    # ---- choosing

    def look_again(self) -> None:
        """Look again: after background work, any index may want a persist."""
        self._looked_at_ms = None

    def most_wanted(self, now_ms: int) -> DelayIndex | None:
        """The next index to persist. Skips a removed one, even if a late frame made it want a persist."""
        if not self._indexes or not self._worth_looking(now_ms):
            return None
        wanting = self._context.wanting
        for gone in [each for each in wanting if self._indexes.get(each.name) is not each]:
            del wanting[gone]
        self._looked_at_ms = None
        self._context.added_entries = 0
        self._staged_entries = sum(index.upkeep.staged_entries for index in self._indexes.values())
        largest = self._largest()
        if largest is not None or wanting:
            return largest or next(iter(wanting))
        quiet = self.is_quiet()
        oldest_ms = now_ms
        for index in self._indexes.values():
            changed_ms = index.upkeep.oldest_change_ms
            if changed_ms is None:
                continue
            oldest_ms = min(oldest_ms, changed_ms)
            is_old = now_ms - changed_ms >= self._options.persist_age_ms
            if is_old or (quiet and index.own_journal.size_bytes > SHORT_JOURNAL_BYTES):
                return index
        self._looked_at_ms, self._old_at_ms = now_ms, oldest_ms + self._options.persist_age_ms
        if quiet:
            self._quiet_token = self._told_token
        return None

    def is_quiet(self) -> bool:
        """True if no index has changed for a while: the staging will not grow soon."""
        token, now_ns = self._context.journal.appended_token, self._clock.monotonic_ns()
        if token != self._told_token:
            self._told_token, self._told_ns = token, now_ns
        return now_ns - self._told_ns >= _QUIET_NS

    def _largest(self) -> DelayIndex | None:
        """The index with most of an exceeded resource; None if none is exceeded."""
        indexes = self._indexes.values()
        if self._staged_entries * ENTRY_BYTES > self._options.staging_budget_bytes:
            return max(indexes, key=lambda index: index.upkeep.staged_entries)
        if self._context.journal.size_bytes > self._options.journal_budget_bytes:
            return max(indexes, key=lambda index: index.own_journal.size_bytes)
        if self._has_many_records:
            return max(indexes, key=lambda index: index.own_journal.records)
        return None

    @property
    def _has_many_records(self) -> bool:
        """True if opening would take long. The longest journal then exceeds its share of the limit."""
        records_max = self._options.journal_records + _RECORDS_EACH * len(self._indexes)
        return self._context.journal.records > records_max

    def _worth_looking(self, now_ms: int) -> bool:
        """True if an index may want a persist. O(1), where looking is O(subscriptions)."""
        return (
            bool(self._context.wanting)
            or self.staged_entries * ENTRY_BYTES > self._options.staging_budget_bytes
            or self._context.journal.size_bytes > self._options.journal_budget_bytes
            or self._has_many_records
            or self._looked_at_ms is None
            # A clock that went back does not prolong the wait.
            or not self._looked_at_ms <= now_ms < self._old_at_ms
            or (self.is_quiet() and self._quiet_token != self._told_token)
        )
