"""The common parts of a catalog's indexes, and the notices that each index sends to the catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidegate.index.clock import Clock
from tidegate.index.journal.journal import Journal
from tidegate.index.options import IndexOptions
from tidegate.index.store import Store

IndexT = TypeVar("IndexT")


@dataclass
class Context(Generic[IndexT]):
    """Store, clock, options, journal, and the indexes that want a persist.

    next_load_changed: called with an index when its next block to load changes.
    crowding_changed: called with an index that may have become more or less crowded.
    corrupt_block: called with an index with a damaged block that its log may have whole. The call comes amid
        other work: it must not call the index.
    wanting: indexes that want a persist for more than spilling (drop, quarantine, repair), in order of wish.
    unheld: indexes with unreported lost positions.
    corrupt_records: corrupt stored values met since the start, blocks included.
    lost_commits: synced writes that were missing at the store's opening, at least.
    added_entries: entries staged since the catalog last counted the staging.
    """

    store: Store
    clock: Clock
    options: IndexOptions
    journal: Journal
    next_load_changed: Callable[[IndexT], None]
    crowding_changed: Callable[[IndexT], None] = lambda _: None
    corrupt_block: Callable[[IndexT], None] = lambda _: None
    wanting: dict[IndexT, None] = field(default_factory=dict)
    unheld: dict[IndexT, None] = field(default_factory=dict)
    corrupt_records: int = 0
    lost_commits: int = 0
    added_entries: int = 0


class Notices(Generic[IndexT]):
    """The notices of `index` and its parts to the catalog."""

    __slots__ = ("_context", "_index")

    def __init__(self, context: Context[IndexT], index: IndexT) -> None:
        self._context = context
        self._index = index

    def next_load_changed(self) -> None:
        """Note that another block is the next to load."""
        self._context.next_load_changed(self._index)

    def want_persist(self) -> None:
        """Note a wish for a persist for more than spilling."""
        self._context.wanting[self._index] = None

    def persist_begins(self) -> None:
        """Note that the wanted persist begins."""
        self._context.wanting.pop(self._index, None)

    def work_changed(self, *, persist: bool) -> None:
        """Note that compactions may have more or less to do than before; ``persist``: so may a persist."""
        if persist:
            self.want_persist()
        self._context.crowding_changed(self._index)

    def corrupt_value(self) -> None:
        """Note an unreadable stored value, for a persist to repair."""
        self._context.corrupt_records += 1
        self.want_persist()

    def corrupt_block(self, logged: bool) -> None:
        """Note an unreadable block; ``logged``: its index log may have it."""
        self.corrupt_value()
        if logged:
            self._context.corrupt_block(self._index)

    def lost_positions(self) -> None:
        """Note that `take_unheld` has positions."""
        self._context.unheld[self._index] = None

    def told_lost(self) -> None:
        """Note that `take_unheld` has none any more."""
        self._context.unheld.pop(self._index, None)

    def removed(self) -> None:
        """Note that the subscription is gone."""
        self.persist_begins()
        self.told_lost()
