"""What the indexes of one catalog share, and what each of them tells the catalog."""

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
    corrupt_block: called with an index of which a block is damaged that its log may have whole. In the midst
        of whatever met it: nothing of the index is to be called then.
    wanting: indexes with something for a persist to do besides spilling (drop, quarantine, put right), in the
        order in which they began to want it.
    unheld: indexes that have lost positions of which nobody has been told yet.
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
    corrupt_block: Callable[[IndexT], None] = lambda _: None
    wanting: dict[IndexT, None] = field(default_factory=dict)
    unheld: dict[IndexT, None] = field(default_factory=dict)
    corrupt_records: int = 0
    lost_commits: int = 0
    added_entries: int = 0


class Notices(Generic[IndexT]):
    """What `index` and its parts tell the catalog."""

    __slots__ = ("_context", "_index")

    def __init__(self, context: Context[IndexT], index: IndexT) -> None:
        self._context = context
        self._index = index

    def due_changed(self) -> None:
        """Its next due time may have changed."""
        self._context.due_changed(self._index)

    def want_persist(self) -> None:
        """There is something for a persist to do besides spilling."""
        self._context.wanting[self._index] = None

    def persist_begins(self) -> None:
        """What was wanted is being done."""
        self._context.wanting.pop(self._index, None)

    def work_changed(self, *, persist: bool) -> None:
        """There may be more or less to compact than before, and something for a persist as well."""
        if persist:
            self.want_persist()
        self._context.crowding_changed(self._index)

    def corrupt_value(self) -> None:
        """A stored value cannot be read: a persist is to put that right."""
        self._context.corrupt_records += 1
        self.want_persist()

    def corrupt_block(self, logged: bool) -> None:
        """A block cannot be read; ``logged``: its index log may have it."""
        self.corrupt_value()
        if logged:
            self._context.corrupt_block(self._index)

    def lost_positions(self) -> None:
        """There is something in `take_unheld`."""
        self._context.unheld[self._index] = None

    def told_lost(self) -> None:
        """There is nothing in `take_unheld` any more."""
        self._context.unheld.pop(self._index, None)

    def removed(self) -> None:
        """The subscription is gone."""
        self.persist_begins()
        self.told_lost()
