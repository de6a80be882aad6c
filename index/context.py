"""What the indexes of one catalog share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidegate.index.clock import Clock
from tidegate.index.journal import Journal
from tidegate.index.options import IndexOptions
from tidegate.index.store import Store

IndexT = TypeVar("IndexT")


@dataclass
class Context(Generic[IndexT]):
    """Store, clock, options, journal, and who wants a persist.

    due_changed: called with an index whose next due time may have changed.
    crowding_changed: called with an index that may have become more or less crowded.
    wanting: indexes with something for a persist to do besides spilling (drop, quarantine, put right), in the
        order in which they began to want it.
    corrupt_records: corrupt stored values met since the start, blocks included.
    lost_commits: synced writes that were gone when the store was opened, at least.
    added_entries: entries staged since the catalog last counted the staging.
    """

    store: Store
    clock: Clock
    options: IndexOptions
    journal: Journal
    due_changed: Callable[[IndexT], None]
    crowding_changed: Callable[[IndexT], None]
    wanting: dict[IndexT, None] = field(default_factory=dict)
    corrupt_records: int = 0
    lost_commits: int = 0
    added_entries: int = 0
