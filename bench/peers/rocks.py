"""Plain RocksDB with the time in the key, as in DiDi's Chronos.

Key: deliver_at_ms, ledger_id, entry_id, big-endian, 24 bytes; no value. A batch is a WriteBatch, a look scans
from the last one's end, one delete_range removes the popped keys.

Durability: RocksDB's WAL, not synced (its default): kill -9 loses nothing, a power failure the last second or
more. Tick: 1 s, as in Chronos. Favourable: no sync, no value, one range tombstone a pop. Unfavourable: keys
pass through the interpreter one by one: about half of its processor time, spared by a C++ or Java program.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

from bench.peers.base import Peer, PeerInfo
from tidegate.index import Clock, Entries, Int64Array

KEY_BYTES = 24
_BIG = np.dtype(">i8")
_FIRST = bytes(KEY_BYTES)
_LAST = b"\xff" * KEY_BYTES
_WRITE_BUFFER_BYTES = 64 << 20


def keys_of(entries: Entries) -> list[bytes]:
    """A key for each entry; they sort as the entries do."""
    table = np.empty((len(entries), 3), dtype=_BIG)
    table[:, 0], table[:, 1], table[:, 2] = entries.deliver_at_ms, entries.ledger_id, entries.entry_id
    packed = table.tobytes()
    return [packed[at : at + KEY_BYTES] for at in range(0, len(packed), KEY_BYTES)]


def entries_of(keys: list[bytes]) -> Entries:
    """The entries with these keys."""
    table = np.frombuffer(b"".join(keys), dtype=_BIG).reshape(-1, 3).astype(np.int64)
    deliver_at_ms, ledger_id, entry_id = np.ascontiguousarray(table.T)
    return Entries(deliver_at_ms, ledger_id, entry_id)


class RocksPeer(Peer):
    """An ordered set of keys on disk."""

    info = PeerInfo(
        "rocksdb",
        "plain RocksDB ordered by time, scanned (as Chronos)",
        "in RocksDB's WAL in the page cache, not synced",
        tick_ms=1_000,
        may_look_faster=True,
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_max_background_jobs(2)
        self._db = Rdict(str(folder / "rocksdb"), options)
        self._from = _FIRST

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """One WriteBatch."""
        batch = WriteBatch(raw_mode=True)
        keys = keys_of(entries)
        for key in keys:
            batch.put(key, b"")
        self._db.write(batch)
        self._from = min(self._from, *keys)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Scan from the last scan's end."""
        end = (now_ms + 1).to_bytes(8, "big")
        keys: list[bytes] = []
        for key in self._db.keys(from_key=self._from):
            if len(keys) == limit or not isinstance(key, bytes) or key >= end:
                break
            keys.append(key)
        if keys:
            self._from = keys[-1] + b"\x00"
        return entries_of(keys)

    def done(self, popped: Entries) -> None:  # noqa: ARG002
        """Delete the range scanned."""
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(_FIRST, self._from)
        self._db.write(batch)

    def count(self) -> int:
        """Count them, one at a time."""
        return sum(1 for _ in self._db.keys(from_key=self._from))

    def settle(self) -> None:
        """Compact everything."""
        self._db.flush()
        self._db.compact_range(_FIRST, _LAST)

    def close(self) -> None:
        """Close the database."""
        self._db.close()
