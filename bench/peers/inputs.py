"""The workload as files in a peer's folder, written by the bench, read by the peer's process.

``workload.COLUMN.npy`` for Python, raw little-endian int64 in ``workload.COLUMN.bin`` for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.harness.errors import BenchError
from bench.harness.workloads import Workload
from tidegate.index import LITTLE_INT64, Entries, Int64Array

DATA = "data"
"""Where, below the folder, the peer's own files go."""
_POPPED = "popped.npy"


@dataclass(frozen=True)
class Input:
    """The entries in order of arrival, with their arrival times."""

    entries: Entries
    arrive_at_ms: Int64Array

    def __len__(self) -> int:
        return len(self.entries)

    def part(self, start: int, stop: int) -> Input:
        """The entries start … stop-1."""
        return Input(self.entries.part(start, stop), self.arrive_at_ms[start:stop])


def write(folder: Path, workload: Workload) -> None:
    """Write a workload into a peer's folder."""
    entries = workload.entries()
    for name, column in (
        ("deliver_at_ms", entries.deliver_at_ms),
        ("ledger_id", entries.ledger_id),
        ("entry_id", entries.entry_id),
        ("arrive_at_ms", workload.arrive_at_ms()),
    ):
        little = column.astype(LITTLE_INT64)
        np.save(folder / f"workload.{name}.npy", little)
        little.tofile(folder / f"workload.{name}.bin")


def read(folder: Path, count: int) -> Input:
    """The first ``count`` entries; raises BenchError if they are missing."""
    columns = {}
    for name in ("deliver_at_ms", "ledger_id", "entry_id", "arrive_at_ms"):
        path = folder / f"workload.{name}.npy"
        try:
            columns[name] = np.load(path, allow_pickle=False)[:count].copy()
        except (OSError, ValueError) as error:
            raise BenchError(f"the bench has written no workload to {folder}: {error}") from error
        if len(columns[name]) != count:
            raise BenchError(f"{path} has {len(columns[name])} entries, {count} are wanted")
    arrive_at_ms = columns.pop("arrive_at_ms")
    return Input(Entries(**columns), arrive_at_ms)


def note_popped(folder: Path, sequence: Int64Array) -> None:
    """Record the entries handed out in the recover phase, which the drain phase then does not miss."""
    np.save(folder / _POPPED, sequence)


def popped(folder: Path) -> Int64Array:
    """The entries handed out in an earlier phase."""
    path = folder / _POPPED
    return np.load(path, allow_pickle=False) if path.exists() else np.empty(0, dtype=np.int64)
