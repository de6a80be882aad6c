"""Files of fixed-size records, and the distribution of entries to them: shared by the peers with files.

A record is three little-endian int64: deliver_at_ms, ledger_id, entry_id. A torn last record is not read.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tidegate.index import LITTLE_INT64, Entries, Int64Array

OPEN_FILES_MAX = 256
_APPENDING = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
Table = npt.NDArray[np.int64]
"""Rows of (deliver_at_ms, ledger_id, entry_id), perhaps with more columns."""


def table_of(entries: Entries) -> Table:
    """The entries as rows."""
    table = np.empty((len(entries), 3), dtype=LITTLE_INT64)
    table[:, 0], table[:, 1], table[:, 2] = entries.deliver_at_ms, entries.ledger_id, entries.entry_id
    return table


def entries_of(parts: list[Table]) -> Entries:
    """The entries of some tables, one after another; columns beyond the third are dropped."""
    if not parts:
        return Entries.empty()
    table = parts[0] if len(parts) == 1 else np.concatenate(parts)
    deliver_at_ms, ledger_id, entry_id = np.ascontiguousarray(table[:, :3].T)
    return Entries(deliver_at_ms, ledger_id, entry_id)


def read_rows(path: str, columns: int) -> Table:
    """All whole records of a file."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 a path object costs as much as the call
        content = file.read()
    numbers = np.frombuffer(content, dtype=LITTLE_INT64, count=len(content) // LITTLE_INT64.itemsize)
    return numbers[: len(numbers) // columns * columns].reshape(-1, columns)


def dealt(keys: Int64Array) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """(key, the places that have it, ascending) for each distinct key, ascending."""
    if not len(keys):
        return
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(keys)], strict=True):
        yield int(ordered[start]), order[start:stop]


class Appenders:
    """Files open for appending, unbuffered; beyond a number of them the one unused for longest is closed."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, int] = OrderedDict()

    def append(self, path: str, content: bytes) -> None:
        """Append to a file, made if missing."""
        file = self._open.get(path)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                os.close(self._open.popitem(last=False)[1])
            file = self._open[path] = os.open(path, _APPENDING, 0o600)
        else:
            self._open.move_to_end(path)
        written = os.write(file, content)
        if written != len(content):
            raise OSError(f"only {written} of {len(content)} bytes were written to {path}")

    def remove(self, path: str) -> None:
        """Close and delete a file, if it exists."""
        file = self._open.pop(path, None)
        if file is not None:
            os.close(file)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 a path object costs as much as the call

    def close(self) -> None:
        """Close all."""
        for file in self._open.values():
            os.close(file)
        self._open.clear()
