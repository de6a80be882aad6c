"""A compaction: merges runs of a slice into one run, in steps, so that no persist waits for it.

`run` merges one slice after another, and stops between two blocks on request; the next `run` continues there.
Merged blocks do not count yet. A `run` that may commit also commits merged slices; none may beside a persist
of the same subscription, because both write slice records. A merged slice that has lost a merged block
meanwhile is discarded.

The commits, one a slice, are not synced, because positions and journal stay. A crash takes commits from the
end, and leaves a slice's old blocks or its new ones.

Invariants: a slice record names only blocks in the store; an entry is omitted as dead only if the stored
`held` bitmaps say so (later additions are in the journal, with their entries); replaced blocks stay until the
core has applied their replacement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.index.blocks.block_writer import BlockWriter
from tidegate.index.blocks.pacing import Pause
from tidegate.index.blocks.persist import StoredBlock
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import merge_runs
from tidegate.index.errors import CorruptBlockError
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, load_block
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import encode_keys, encode_slice
from tidegate.index.options import IndexOptions
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, Store
from tidegate.index.timeline.in_flight import InFlightEntries
from tidegate.index.timeline.merge import Item, RunHeap, Taken
from tidegate.index.timeline.run import Run

_FOREVER_MS = (1 << 63) - 1

Slices = Mapping[SliceId, Iterable[BlockDescriptor]]
"""All blocks of some slices."""


class Task(NamedTuple):
    """The merging to do in one slice.

    blocks: all blocks of each run to merge. live: positions held according to the store, as of the newest of
    the blocks or later; None: omit nothing.
    """

    blocks: list[BlockDescriptor]
    live: PositionSet | None

    @property
    def entries(self) -> int:
        """Number of entries to merge."""
        return sum(block.entries for block in self.blocks)


@dataclass
class CompactionResult:
    """The committed part of a compaction, for the core to apply.

    retired: keys of replaced blocks, for the core to delete once it no longer loads them, else for recovery;
    intents: keys of the intents that list them.
    """

    exchanged: dict[SliceId, tuple[list[int], list[BlockDescriptor]]] = field(default_factory=dict)
    corrupt: list[StoredBlock] = field(default_factory=list)
    retired: list[bytes] = field(default_factory=list)
    intents: list[bytes] = field(default_factory=list)


class _MergedBlock:
    """A stored block as a source of a merge."""

    stored = True

    def __init__(self, job: CompactionJob, stored: StoredBlock) -> None:
        self._job = job
        self._stored = stored
        self.in_flight = InFlightEntries()

    def open_item(self) -> Iterable[tuple[EntryKey, Item]]:
        entries = self._job.read(self._stored)
        if entries is None:
            return []
        run = Run(entries, self)
        return [(run.key(), run)]

    def consumed(self, run: Run, count: int) -> None:
        """Nothing: a merge is never rewound."""


class CompactionJob:
    """One subscription's compaction, number `version` in one row with its persists.

    done: nothing is left to merge or commit. If the store fails, `run` raises StorageError and ends the job.
    """

    def __init__(
        self, store: Store, options: IndexOptions, subscription_id: int, version: int, writer: BlockWriter
    ) -> None:
        self._store = store
        self._options = options
        self._subscription_id = subscription_id
        self._version = version
        self._writer = writer
        self._slices: Slices = {}
        self._left: dict[SliceId, Task] = {}
        self._merging: Iterator[None] | None = None
        self._merged: dict[SliceId, list[BlockDescriptor]] = {}
        """The new blocks of slices to commit."""
        self._committed: dict[SliceId, tuple[list[int], list[BlockDescriptor]]] = {}
        """Slices with their commit in the writer's batch, or in one that failed to be written."""
        self._retired: list[bytes] = []
        self._intents: list[bytes] = []
        """Keys of the intents that list the blocks retired by these commits."""
        self._commits = 0
        self._writes = 0
        self._corrupt: set[StoredBlock] = set()
        self._result = CompactionResult()

    def extend(self, tasks: Mapping[SliceId, Task]) -> None:
        """Add slices to merge, none of them among `left`."""
        self._left.update(tasks)

    @property
    def left(self) -> Mapping[SliceId, Task]:
        """The uncommitted slices."""
        return self._left

    @property
    def done(self) -> bool:
        """True if nothing is left to do."""
        return not self._left

    @property
    def has_merged(self) -> bool:
        """True if merged slices wait to be committed."""
        return bool(self._merged)

    def run(self, slices: Slices, pause: Pause, *, commits: bool) -> None:
        """Continue until nothing is left or `pause`, asked after each block, returns true.

        slices: all blocks of each remaining slice known to the core, without slices that have lost a block to
        be merged. With `commits` nothing else may write these slices meanwhile.
        """
        self._slices = slices
        if commits:
            self._commit_merged()
        while self._step():
            if commits and self._merging is None:
                self._commit_merged()
            if pause():
                break
        if commits:
            self._write()

    def take_result(self) -> CompactionResult:
        """The part committed since the last call."""
        taken, self._result = self._result, CompactionResult()
        return taken

    def deletion(self, result: CompactionResult) -> Batch:
        """Deletes a result's retired blocks; write it once nothing loads them."""
        batch = Batch()
        for key in (*result.retired, *result.intents):
            batch.delete(key)
        return batch

    def leftovers(self) -> tuple[list[bytes], set[SliceId]]:
        """The remains of an abandoned job: keys that do not count, and slices with a doubtful commit."""
        return [*self._writer.leftovers(), *self._intents], set(self._committed)

    def read(self, stored: StoredBlock) -> Entries | None:
        """A block's entries; None, and a note, if it is corrupt."""
        slice_id, descriptor = stored
        try:
            return load_block(self._store, self._subscription_id, slice_id, descriptor)
        except CorruptBlockError:
            self._result.corrupt.append(stored)
            self._corrupt.add(stored)
            return None

    def _step(self) -> bool:
        """Merge about one block; False if everything is merged."""
        if self._merging is None:
            slice_id = next((each for each in self._left if each not in self._merged), None)
            if slice_id is None:
                return False
            self._merging = self._merge(slice_id, self._left[slice_id])
        if next(self._merging, self) is self:
            self._merging = None
        return True

    def _merge(self, slice_id: SliceId, task: Task) -> Iterator[None]:
        """Write the entries of a slice's blocks as one run, a block in each step."""
        heap = RunHeap()
        for block in task.blocks:
            heap.push(block.first, _MergedBlock(self, (slice_id, block)))

        def accept(taken: Taken) -> Entries:
            entries = merge_runs(Entries.concat(part for _, part in taken))
            return entries if task.live is None else entries.take(task.live.contains(entries))

        added = []
        run_id = self._writer.ids.upcoming
        while len(heap) and slice_id in self._slices:
            entries = heap.pop_entries(_FOREVER_MS, self._options.block_entries, _FOREVER_MS, accept).unique()
            if len(entries):
                added.append(self._writer.block(slice_id, run_id, entries, group=slice_id))
                self._note_written()
                yield
        self._merged[slice_id] = added

    def _commit_merged(self) -> None:
        for slice_id, added in self._merged.items():
            if slice_id in self._slices:
                self._commit(slice_id, added)
            else:
                self._writer.drop(group=slice_id)
            del self._left[slice_id]
        self._merged = {}
        if self._writer.pending_bytes >= self._options.write_piece_bytes:
            self._write()

    def _commit(self, slice_id: SliceId, added: list[BlockDescriptor]) -> None:
        subscription_id = self._subscription_id
        gone = {
            block.block_id for block in self._left[slice_id].blocks if (slice_id, block) not in self._corrupt
        }
        blocks = [block for block in self._slices[slice_id] if block.block_id not in gone] + added
        commit, key = Batch(), keys.slice_key(subscription_id, slice_id)
        if blocks:
            commit.put(key, encode_slice(blocks))
        else:
            commit.delete(key)
        retired = [keys.block_key(subscription_id, slice_id, block_id) for block_id in sorted(gone)]
        if retired:
            intent = keys.intent_key(subscription_id, self._version, keys.RETIRED_PIECE - self._commits)
            commit.put(intent, encode_keys(retired))
            self._commits += 1
            self._retired += retired
            self._intents.append(intent)
        self._writer.commit(commit, group=slice_id)
        self._committed[slice_id] = (sorted(gone), added)

    def _write(self) -> None:
        self._writer.write()
        self._note_written()

    def _note_written(self) -> None:
        if self._writes == self._writer.writes:
            return
        self._writes = self._writer.writes
        self._result.exchanged.update(self._committed)
        self._result.retired += self._retired
        self._result.intents += self._intents
        self._committed, self._retired, self._intents = {}, [], []
