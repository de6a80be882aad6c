"""The whole index with either journal: ``python -m bench.journal.index_worker JOURNAL DIR COUNT INDEXES``.

As ``scale`` fills it: in the daemon's way, with commits and persists in other threads.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.harness.index_driver import IndexDriver
from bench.harness.made_entries import START_MS, Source
from bench.harness.worker_process import tell_and_wait
from bench.journal.journal_file import JournalFile, Row
from bench.scale.steps import fill
from tidegate.index import Batch, ManualClock, RocksStore, Store
from tidegate.index.format import keys
from tidegate.plugin.daemon.serve import open_store
from tidegate.plugin.daemon.settings import Settings

DAY_MS = 86_400_000


class JournalBeside(RocksStore):
    """RocksDB for all but the journal's records, which go to a `JournalFile`; nothing reads them back."""

    file: JournalFile

    def write(self, batch: Batch, *, sync: bool) -> None:
        """See `Store`. Without deletions of records: files go whole."""
        rows: list[Row] = []
        rest = Batch()
        for kind, key, value in batch.operations:
            if key[:1] != keys.JOURNAL:
                rest.operations.append((kind, key, value))
                rest.size_bytes += len(key) + len(value)
            elif kind == Batch.PUT:
                rows.append((key, value))
        if rows:
            self.file.write(rows, sync=sync)
        if len(rest) or not rows:
            super().write(rest, sync=sync)
            if sync and not rows:
                # With one subscription a persist covers all but the present file.
                self.file.trim(self.file.number)


def open_beside(settings: Settings) -> Store:
    """The store of that folder, its journal in another folder beside."""
    store = JournalBeside.open(settings.data)
    assert isinstance(store, JournalBeside)
    store.file = JournalFile(settings.data.with_name(f"{settings.data.name}-journal"))
    return store


def main() -> None:
    """Fill one index or several, print the figures."""
    name, folder, count, indexes = sys.argv[1:]
    clock = ManualClock(START_MS - DAY_MS)
    with IndexDriver.opened(Path(folder), clock, open_beside if name == "file" else open_store) as driver:
        filled = [driver.subscription(number) for number in range(int(indexes))]
        figures = fill(driver, filled, Source(7 * DAY_MS), int(count))
        tell_and_wait(figures | {"commits": driver.commits})


if __name__ == "__main__":
    main()
