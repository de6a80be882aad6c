"""Checks RocksDB's WALs before it opens them, for the two kinds of damage that it cannot handle
(docs/decisions/witness.md).

A WAL, like the manifest, is a row of records in blocks of 32 KiB:

    record := crc:u32 size:u16 type:u8 data[size]      none begins in the last 6 bytes of a block

- The types 5 to 8 and 11 belong to recycled WALs, which we do not use. RocksDB takes such a record for a rest
  of an older WAL before it checks the checksum, and then loops for ever.
- Size and type 0 mean "nothing more in this block": zeros from a disk in place of a page hide its content.

Either becomes a record with a wrong checksum, and RocksDB stops there as at any damage. The witness knows if
the lost rest was durable. The blocks are checked side by side: a WAL of 64 MiB takes milliseconds.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tidegate.index.errors import DamagedDirectoryError

_LOG = logging.getLogger(__name__)

_BLOCK_BYTES = 32_768
_HEADER_BYTES = 7
_FULL = 1
_INSTEAD = {5: 1, 6: 2, 7: 3, 8: 4, 11: 3}
"""The types of recycled WALs. After a flip of one bit this repairs it, as the checksum then shows."""

_RECYCLED = np.isin(np.arange(256), list(_INSTEAD))


def stop_at_damage(directory: Path) -> None:
    """Make RocksDB stop where it would loop or skip damage, in all its WALs. Raises OSError."""
    wals = sorted(directory.glob("*.log"), key=lambda path: (len(path.name), path.name))
    manifests = list(directory.glob("MANIFEST-*"))
    for path in [*wals, *manifests]:
        # Only the last WAL may end in zeros, left by a power cut in place of unsynced bytes.
        _stop_in(path, is_last=path in {*wals[-1:], *manifests})


def require_readable_manifests(directory: Path) -> None:
    """Raise DamagedDirectoryError for a damaged manifest. Changes nothing: the owner is unknown yet."""
    for path in _manifests_in_use(directory):
        if path.stat().st_size and find_stops(np.memmap(path, dtype=np.uint8, mode="r"), is_last=True):
            raise DamagedDirectoryError(str(directory), f"{path.name} cannot be read")


def _manifests_in_use(directory: Path) -> list[Path]:
    """The manifest of CURRENT.

    Any other was being written during a power cut, and is not read: RocksDB names only a synced one.
    """
    manifests = list(directory.glob("MANIFEST-*"))
    try:
        current = (directory / "CURRENT").read_bytes().rstrip(b"\n").decode("ascii", "replace")
    except FileNotFoundError:
        return manifests
    return [path for path in manifests if path.name == current] or manifests


def _stop_in(path: Path, *, is_last: bool) -> None:
    if not path.stat().st_size:
        return
    content = np.memmap(path, dtype=np.uint8, mode="r")
    stops = find_stops(content, is_last=is_last)
    if not stops:
        return
    # A power cut leaves zeros, too. The witness shows if anything durable is gone.
    _LOG.warning("reading %s only up to byte %d, as after a power cut or damage", path, min(stops))
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for at, byte in stops.items():
            os.pwrite(descriptor, bytes([byte]), at)
    finally:
        os.close(descriptor)


def find_stops(content: npt.NDArray[np.uint8], *, is_last: bool) -> dict[int, int]:
    """Offsets in a WAL of the types to change, and the new types. `is_last`: zeros may end it.

    content: all bytes of the WAL.
    """
    at = np.arange(0, len(content), _BLOCK_BYTES)
    end = np.minimum(at + _BLOCK_BYTES, len(content))
    stops: dict[int, int] = {}
    zeros: list[int] = []
    while True:
        inside = at + _HEADER_BYTES <= end
        at, end = at[inside], end[inside]
        if not len(at):
            break
        size = content[at + 4].astype(np.int64) | content[at + 5].astype(np.int64) << 8
        kind = content[at + 6]
        recycled = _RECYCLED[kind]
        for wrong in at[recycled]:
            stops[int(wrong) + 6] = _INSTEAD[int(content[wrong + 6])]
        empty = (kind == 0) & (size == 0)
        zeros += at[empty].tolist()
        on = ~(recycled | empty)
        at, end = at[on] + _HEADER_BYTES + size[on], end[on]
    if zeros:
        first = min(zeros)
        if not is_last or content[first:].any():
            stops[first + 6] = _FULL
    return stops
