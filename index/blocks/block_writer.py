"""Writes blocks and other values in pieces, before the commit that makes them count:
docs/decisions/persist-in-pieces.md.

Pieces are unsynced and of about half a megabyte. A piece lists its uncommitted keys as an intent; recovery
deletes such keys. A commit goes with a later piece and everything unwritten, and removes the intents. Keys
that count together form a group: one for a persist, one for each slice of a compaction.

Invariants: every uncommitted key in the store is in an intent of its group, written with it, and no committed
key is; a block id is given once.
"""

from __future__ import annotations

from collections.abc import Hashable

from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, describe, encode_block
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import encode_keys
from tidegate.index.store import Batch, Store


class BlockIds:
    """Gives every block of a subscription its own id. Used by one job at a time."""

    __slots__ = ("upcoming",)

    def __init__(self, upcoming: int) -> None:
        self.upcoming = upcoming
        """Ids from this one on are free."""

    def next_id(self) -> int:
        """A fresh id."""
        taken = self.upcoming
        self.upcoming += 1
        return taken


Group = Hashable


class _Uncommitted:
    """The uncommitted part of a group: unwritten keys, written keys, and their intents."""

    __slots__ = ("ahead", "intents", "written")

    def __init__(self) -> None:
        self.ahead: list[bytes] = []
        self.written: list[bytes] = []
        self.intents: list[bytes] = []

    def all_keys(self) -> list[bytes]:
        return [*self.written, *self.ahead, *self.intents]


class BlockWriter:
    """Writes for one job, number `version` of a subscription. Methods raise StorageError.

    writes: number of successful writes.
    """

    def __init__(
        self, store: Store, subscription_id: int, version: int, *, ids: BlockIds, piece_bytes: int
    ) -> None:
        self.ids = ids
        self.writes = 0
        self._store = store
        self._subscription_id = subscription_id
        self._version = version
        self._piece_bytes = piece_bytes
        self._pieces = 0
        self._batch = Batch()
        self._groups: dict[Group, _Uncommitted] = {}
        self._covered: list[bytes] = []
        """Keys of a commit in `_batch`, or in a batch that failed to be written."""

    def put(self, key: bytes, value: bytes, group: Group = None) -> None:
        """Write a value that counts with its group's commit."""
        self._batch.put(key, value)
        self._groups.setdefault(group, _Uncommitted()).ahead.append(key)
        if self._batch.size_bytes >= self._piece_bytes:
            self.write()

    def block(self, slice_id: SliceId, run_id: int, entries: Entries, group: Group = None) -> BlockDescriptor:
        """Write one block of a run; its entries are sorted and without repeats."""
        block_id = self.ids.next_id()
        value = encode_block(entries)
        self.put(keys.block_key(self._subscription_id, slice_id, block_id), value, group)
        return describe(entries, len(value), block_id, run_id)

    def commit(self, operations: Batch, group: Group = None) -> None:
        """Let the group's values count from the next write on, together with `operations`."""
        self._batch.extend(operations)
        self._cover(group)

    def drop(self, group: Group) -> None:
        """Delete the group's values, with the next write."""
        of_group = self._groups.get(group, _Uncommitted())
        for key in (*of_group.written, *of_group.ahead):
            self._batch.delete(key)
        self._cover(group)

    def _cover(self, group: Group) -> None:
        of_group = self._groups.pop(group, _Uncommitted())
        for key in of_group.intents:
            self._batch.delete(key)
        self._covered += of_group.all_keys()

    def write(self, *, sync: bool = False) -> None:
        """Write everything put, committed and dropped since the last write."""
        if not len(self._batch):
            return
        for of_group in self._groups.values():
            if of_group.ahead:
                intent = keys.intent_key(self._subscription_id, self._version, self._pieces)
                self._pieces += 1
                self._batch.put(intent, encode_keys(of_group.ahead))
                of_group.intents.append(intent)
                of_group.written += of_group.ahead
                of_group.ahead = []
        batch, self._batch = self._batch, Batch()
        self._store.write(batch, sync=sync)
        self._covered = []
        self.writes += 1

    def leftovers(self) -> list[bytes]:
        """Keys that do not count without another write; they may be in the store."""
        return [*self._covered, *(key for of_group in self._groups.values() for key in of_group.all_keys())]

    @property
    def pending_bytes(self) -> int:
        """Size of the next write in bytes."""
        return self._batch.size_bytes
