"""Group commits to one of the two journals: ``python -m bench.journal.worker JOURNAL DIR COUNT BATCH RATE``.

As in the daemon: this thread turns batches into records, another writes waiting ones as one synced commit, a
third spills now and then: blocks and a manifest into RocksDB, after which the journal up to there goes. RATE:
batches a second, 0: as many as become durable.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.harness.made_entries import Source
from bench.harness.meters import PeakMemory, disk_bytes
from bench.harness.worker_process import tell_and_wait
from bench.journal.journal_file import JournalFile, Row
from tidegate.index import Batch, RocksStore, Store
from tidegate.index.format import keys, pack_entries, wrap

SUBSCRIPTION = 1
_ADD = 1
"""The type of a record of added entries."""
SPILL_ENTRIES = 2_000_000
BLOCK_ENTRIES, BLOCK_BYTES = 65_536, 255_000
"""A block as pcodec packs it, 3.9 bytes an entry."""
WAITING_MAX = 64
"""Batches that wait for a commit at most: the daemon slows its reading down then."""


class Journal(Protocol):
    """The interface of both."""

    def commit(self, rows: Sequence[Row]) -> None:
        """Append the rows, durably."""
        ...

    def spill(self, blocks: Sequence[Row], manifest: Row, until: int) -> None:
        """Store blocks and a manifest durably, then drop records up to number ``until``."""
        ...


class InRocks:
    """The journal as a family of RocksDB, with its witness: what the daemon does."""

    def __init__(self, folder: Path) -> None:
        self._store = RocksStore.open(folder)

    def commit(self, rows: Sequence[Row]) -> None:
        """One synced batch."""
        batch = Batch()
        for key, value in rows:
            batch.put(key, value)
        self._store.write(batch, sync=True)

    def spill(self, blocks: Sequence[Row], manifest: Row, until: int) -> None:
        """Blocks in pieces; the manifest with the deletion of the records, synced."""
        _write_blocks(self._store, blocks)
        batch = Batch()
        batch.put(*manifest)
        batch.delete_range(_key(0), _key(until + 1))
        self._store.write(batch, sync=True)


class InFile:
    """The journal as a file; blocks and manifests in RocksDB as before."""

    def __init__(self, folder: Path) -> None:
        self._store = RocksStore.open(folder)
        self._file = JournalFile(folder.with_name(f"{folder.name}-journal"))
        self._file_of: list[tuple[int, int]] = []
        """(number of a file, the last record in it), ascending."""

    def commit(self, rows: Sequence[Row]) -> None:
        """One synced commit."""
        self._file.write(rows, sync=True)
        last, _ = keys.parse_journal_key(rows[-1][0])
        if self._file_of and self._file_of[-1][0] == self._file.number:
            self._file_of[-1] = (self._file.number, last)
        else:
            self._file_of.append((self._file.number, last))

    def spill(self, blocks: Sequence[Row], manifest: Row, until: int) -> None:
        """Blocks in pieces; the manifest synced; then the files that it covers go."""
        _write_blocks(self._store, blocks)
        batch = Batch()
        batch.put(*manifest)
        self._store.write(batch, sync=True)
        covered = [number for number, last in list(self._file_of) if last <= until]
        if covered:
            self._file.trim(covered[-1] + 1)


def _write_blocks(store: Store, blocks: Sequence[Row]) -> None:
    for key, value in blocks:
        batch = Batch()
        batch.put(key, value)
        store.write(batch, sync=False)


def _key(sequence: int) -> bytes:
    return keys.journal_key(SUBSCRIPTION, sequence, _ADD)


JOURNALS: dict[str, Callable[[Path], Journal]] = {"rocksdb": InRocks, "file": InFile}


class Run:
    """One run of ``count`` entries in batches of ``batch``."""

    def __init__(self, journal: Journal, count: int, batch: int, rate: float) -> None:
        self._journal = journal
        self._count, self._batch, self._rate = count, batch, rate
        self._waiting: list[tuple[int, Row]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._spills: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.latency_ns: list[int] = []
        self.commits = 0

    def run(self) -> float:
        """Seconds until everything is durable."""
        committer = threading.Thread(target=self._commit)
        spiller = threading.Thread(target=self._spill)
        began_ns = time.perf_counter_ns()
        committer.start()
        spiller.start()
        source = Source(7 * 86_400_000)
        for number in range(self._count // self._batch):
            if self._rate:
                pause_s = (began_ns + number / self._rate * 1e9 - time.perf_counter_ns()) / 1e9
                time.sleep(max(pause_s, 0))  # the rate has its next batch due then
            entries = source.entries(number * self._batch, self._batch)
            told_ns = time.perf_counter_ns()
            row = _key(number + 1), wrap(keys.JOURNAL, pack_entries(entries, compress=False))
            with self._changed:
                self._changed.wait_for(lambda: len(self._waiting) < WAITING_MAX)
                self._waiting.append((told_ns, row))
                self._changed.notify_all()
            if (number + 1) * self._batch % SPILL_ENTRIES < self._batch:
                self._spills.put(number + 1)
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        committer.join()
        took_s = (time.perf_counter_ns() - began_ns) / 1e9
        self._spills.put(None)
        spiller.join()
        return took_s

    def _commit(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ended)
                taken, self._waiting = self._waiting, []
                self._changed.notify_all()
            if not taken:
                return
            self._journal.commit([row for _, row in taken])
            now_ns = time.perf_counter_ns()
            self.commits += 1
            self.latency_ns += [now_ns - told_ns for told_ns, _ in taken]

    def _spill(self) -> None:
        made = 0
        while (until := self._spills.get()) is not None:
            blocks = [
                (b"Z%012d" % (made + number), os.urandom(BLOCK_BYTES))
                for number in range(SPILL_ENTRIES // BLOCK_ENTRIES)
            ]
            made += len(blocks)
            self._journal.spill(blocks, (b"Y", os.urandom(2_000)), until)


def main() -> None:
    """Run one journal, print its figures."""
    name, folder, count, batch, rate = sys.argv[1:]
    journal = JOURNALS[name](Path(folder))
    run = Run(journal, int(count), int(batch), float(rate))
    memory, cpu_s = PeakMemory(), time.process_time()
    took_s = run.run()
    late_ms = np.array(run.latency_ns) / 1e6
    tell_and_wait(
        {
            "adds_per_s": int(count) / took_s,
            "cpu_ns": (time.process_time() - cpu_s) * 1e9 / int(count),
            "commits": run.commits,
            "p50_ms": float(np.percentile(late_ms, 50)),
            "p99_9_ms": float(np.percentile(late_ms, 99.9)),
            "max_ms": float(late_ms.max()),
            "memory_mib": memory.peak_mib,
            "disk_bytes": disk_bytes(Path(folder).parent),
        }
    )


if __name__ == "__main__":
    main()
