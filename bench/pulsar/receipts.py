"""A consumer's receipts: a fixed-size record for each message, appended by one write each.

The bench reads the growing file; it survives either process's kill. A record is four little-endian int64:
sequence number and deliver_at (from the payload), wall clock at arrival and at acknowledgement (0 without
one).
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

RECORD = np.dtype(
    [("sequence", "<i8"), ("deliver_at_ms", "<i8"), ("arrived_at_ns", "<i8"), ("acked_at_ns", "<i8")]
)
_PACK = struct.Struct("<4q")
PAYLOAD = struct.Struct("<2q")
"""A message's content: sequence number, deliver_at in ms since the epoch."""


class ReceiptWriter:
    """Appends records to a file, unbuffered."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, sequence: int, deliver_at_ms: int, arrived_at_ns: int, acked_at_ns: int) -> None:
        """Write one record."""
        os.write(self._descriptor, _PACK.pack(sequence, deliver_at_ms, arrived_at_ns, acked_at_ns))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)


def count(path: Path) -> int:
    """The number of whole records in the file; 0 if it does not exist."""
    try:
        return path.stat().st_size // RECORD.itemsize
    except FileNotFoundError:
        return 0


def read(path: Path) -> NDArray[np.void]:
    """The whole records of the file as a structured array of ``RECORD``."""
    if not path.exists():
        return np.empty(0, RECORD)
    data = path.read_bytes()
    return np.frombuffer(data[: len(data) // RECORD.itemsize * RECORD.itemsize], RECORD)


def lateness_ms(records: NDArray[np.void]) -> NDArray[np.float64]:
    """Arrival minus deliver_at in ms; negative is early."""
    lateness: NDArray[np.float64] = records["arrived_at_ns"] / 1e6 - records["deliver_at_ms"]
    return lateness
