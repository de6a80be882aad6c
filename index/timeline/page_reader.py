"""All entries of one subscription at one moment, in order, a page at a time.

The core's thread makes a reader, at the cost of a pointer a block; any other thread uses it. Invariant: a
page has every entry between its two keys at that moment, also dead ones, each once. Entries keep their keys
through a persist, so pages of later moments fit together: an entry that waits throughout, for one time, is in
exactly one. Entries of moved positions have the times that hold, or are absent, for a caller that compares
times with the messages'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import merge_runs, sort_entries
from tidegate.index.errors import CorruptBlockError
from tidegate.index.format.block import BlockDescriptor, load_block
from tidegate.index.format.keys import SliceId
from tidegate.index.state.moved import MovedSnapshot
from tidegate.index.store import Store

FIRST_KEY: EntryKey = (-1, -1, -1)


class Page(NamedTuple):
    """Sorted entries; ``last``: the key up to which they go, None if nothing follows."""

    entries: Entries
    last: EntryKey | None


class PageReader:
    """The entries of an index: staged, in blocks, and with `with_moved` the moved ones."""

    def __init__(
        self,
        store: Store,
        subscription_id: int,
        parts: Sequence[Entries],
        blocks: Sequence[tuple[SliceId, BlockDescriptor]],
        moved: MovedSnapshot,
        *,
        with_moved: bool,
    ) -> None:
        self._store = store
        self._subscription_id = subscription_id
        self._parts = parts
        self._blocks = blocks
        self._moved = moved
        self._with_moved = with_moved

    def after(self, key: EntryKey, limit: int, *, strict: bool) -> Page:
        """About `limit` entries after `key`; memory is bounded by these and the blocks that overlap there.

        Raises CorruptBlockError if a block cannot be read, perhaps because a persist has replaced it since;
        if not `strict`, such a block is skipped. Raises StorageError.
        """
        parts = [self._moved.without(part) for part in self._parts]
        if self._with_moved:
            parts.append(self._moved.entries())
        firsts: list[Entries] = []
        complete_ms: int | None = None
        for part in parts:
            first = _later(part, key, complete_ms)
            if len(first) > 2 * limit:
                # Sorting all of it for each page would take long.
                complete_ms = int(np.partition(first.deliver_at_ms, limit)[limit])
                first = first.take(first.deliver_at_ms <= complete_ms)
            firsts.append(first)
        found = sort_entries(Entries.concat(firsts), unique=True)
        ahead = sorted(
            (one for one in self._blocks if one[1].last_deliver_at_ms >= key[0]), key=lambda one: one[1].first
        )
        more = False
        for slice_id, block in ahead:
            if len(found) >= limit and block.first > found.key(limit - 1):
                more = True
                break
            try:
                entries = load_block(self._store, self._subscription_id, slice_id, block)
            except CorruptBlockError:
                if strict:
                    raise
                continue
            entries = self._moved.without(_later(entries, key))
            found = merge_runs(Entries.concat((found, entries)), unique=True)
        if complete_ms is not None:
            # Repeats, as after UNACKNOWLEDGE, may leave fewer than `limit` of a part with more to come.
            found, more = found.take(found.deliver_at_ms <= complete_ms), True
        if len(found) > limit:
            found, more = found.part(0, limit), True
        return Page(found, found.key(len(found) - 1) if more else None)


def _later(entries: Entries, key: EntryKey, last_ms: int | None = None) -> Entries:
    """The entries after `key`, due at `last_ms` at the latest."""
    deliver_at_ms, ledger_id, entry_id = key
    which = entries.deliver_at_ms >= deliver_at_ms
    if last_ms is not None:
        which &= entries.deliver_at_ms <= last_ms
    some = entries if which.all() else entries.take(np.flatnonzero(which))
    before = (some.deliver_at_ms == deliver_at_ms) & (
        (some.ledger_id < ledger_id) | ((some.ledger_id == ledger_id) & (some.entry_id <= entry_id))
    )
    return some.take(~before) if before.any() else some
