"""A store in RocksDB. The only module that imports rocksdict; its errors do not leave it.

The journal has a column family of its own: it is three quarters of what is written, and dead within seconds.
Among the blocks it would be compacted with them again and again; alone, most of it dies in its memtable.

A write that fails puts RocksDB into a read-only state, so the database is opened again before the next
write; its log then holds either the whole batch or nothing of it, and both are right, because the index
writes it once more.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from tidegate.index.errors import (
    AlreadyOpenError,
    ClosedError,
    CorruptRecordError,
    DamagedDirectoryError,
    ForeignDirectoryError,
    StorageError,
    TidegateIndexError,
    UnwritableDirectoryError,
)
from tidegate.index.format.keys import FORMAT_KEY, JOURNAL
from tidegate.index.options import MIB
from tidegate.index.store import Batch

_WRITE_BUFFER_BYTES = 16 * MIB
_JOURNAL_FAMILY = "journal"
_JOURNAL_BUFFER_BYTES = 32 * MIB
_JOURNAL_FILES_MAX = 2
_AFTER_JOURNAL = bytes([JOURNAL[0] + 1])
_BLOCK_CACHE_BYTES = 8 * MIB
_WAL_BYTES_PER_SYNC = MIB // 2
_WAL_BYTES_MAX = 64 * MIB
_GARBAGE_BYTES = 8 * MIB
_GARBAGE_SHARE = 20
_TIDY_BYTES = 4 * MIB
_LOG_FILES_MAX = 4
_LOG_FILE_BYTES = 4 * MIB
_OPEN_FILES_MAX = 512
_PROBE = ".probe"
_IN_USE = ("IO error: lock hold by current process", "IO error: While lock file: ")
"""How RocksDB begins to say that this process, or another one, has the directory open."""


class RocksStore:
    """An ordered key-value store in a directory; see `Store`."""

    def __init__(self, path: Path, families: _Families) -> None:
        self._path = path
        self._families = families
        self._failed = False
        self._written_bytes = 0
        self._closed = False
        self._lock = threading.Lock()
        self._unsynced = WriteOptions()

    def __str__(self) -> str:
        return str(self._path)

    @classmethod
    def open(cls, path: Path) -> RocksStore:
        """Open or create the database in directory `path`.

        Raises UnwritableDirectoryError, AlreadyOpenError, DamagedDirectoryError, StorageError.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / _PROBE
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise UnwritableDirectoryError(str(path), error.strerror or str(error)) from error
        store = cls(path, _open(path))
        store._move_journal()
        return store

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None if there is none. Raises CorruptRecordError if it is damaged."""
        try:
            families = self._families
            value = (families.journal if key[:1] == JOURNAL else families.main).get(key)
        except Exception as error:
            if _is_corruption(error):
                raise CorruptRecordError(f"a value in {self._path} cannot be read: {error}") from error
            raise self._translate(error) from error
        return None if value is None else bytes(value)

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply `batch` atomically; with `sync` it and every earlier write are durable on return."""
        if self._failed:
            self._open_again()
        families = self._families
        # No lock: a commit must not wait for the disk to sync what another thread has written. If that thread
        # meets a failure and opens the database again, this write fails too and is tried again.
        try:
            families.main.write(families.write_batch(batch), self._unsynced)
            if sync:
                # Not a synced write: that holds the interpreter lock while the disk works, this does not.
                families.main.flush_wal(True)
            self._written_bytes += batch.size_bytes
        except Exception as error:
            self._failed = not self._closed
            raise self._translate(error) from error

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end, keys ascending.

        Raises DamagedDirectoryError where RocksDB cannot read on: the keys after that are not known then.
        """
        families = self._families
        parts = [
            self._scan(family, max(start, low), min(end, high))
            for family, low, high in (
                (families.main, b"", JOURNAL),
                (families.journal, JOURNAL, _AFTER_JOURNAL),
                (families.main, _AFTER_JOURNAL, end),
            )
            if start < high and low < end
        ]
        return itertools.chain.from_iterable(parts)

    def _scan(self, family: Rdict, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        # The bound keeps RocksDB from reading, and failing at, what is behind the range.
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(end)
        try:
            # Not Rdict.items: that takes damage for the end.
            rows = family.iter(bounded)
            rows.seek(start)
            while rows.valid():
                yield cast(bytes, rows.key()), cast(bytes, rows.value())
                rows.next()
            rows.status()
        except GeneratorExit:
            raise
        except Exception as error:
            raise self._translate(error) from error

    def tidy(self) -> None:
        """Write what is in memory into tables, so that the log can go and opening has nothing to repeat.

        To be called when the journal is short: its dead records never reach a table then.
        """
        if self._written_bytes < _TIDY_BYTES:
            return
        # RocksDB cannot be closed while a call is in it: half closed, it would stay open, and locked.
        with self._lock:
            if self._failed or self._closed:
                return
            self._written_bytes = 0
            families = self._families
            try:
                families.main.flush()
                families.journal.flush()
                families.journal.compact_range(None, None)
                if _too_much_garbage(families.main):
                    families.main.compact_range(None, None)
            except Exception as error:
                raise self._translate(error) from error

    def disk_bytes(self) -> int:
        """Bytes of all files of the database."""
        total = 0
        for each in self._path.iterdir():
            try:
                total += each.stat().st_size
            except FileNotFoundError:
                continue  # compaction removes files at any time
        return total

    def close(self) -> None:
        """Close the database. Closing twice is harmless."""
        with self._lock:
            if not self._closed:
                self._closed = True
                try:
                    self._families.close()
                except Exception as error:
                    raise self._translate(error) from error

    def _move_journal(self) -> None:
        """Directories of before there was a family for the journal have it among everything else."""
        batch = Batch()
        families = self._families
        try:
            for key, value in self._scan(families.main, JOURNAL, _AFTER_JOURNAL):
                batch.put(key, value)
            if len(batch):
                made = families.write_batch(batch)
                made.delete_range(JOURNAL, _AFTER_JOURNAL)
                families.main.write(made, self._unsynced)
                families.main.flush_wal(True)
        except Exception as error:
            families.close()
            raise self._translate(error) from error

    def _open_again(self) -> None:
        with self._lock:
            if not self._failed or self._closed:
                return
            # Opening writes what the log holds into tables. Without room for that the database would stay
            # closed; as it is, it can at least be read.
            self._require_room()
            # Closing repeats the error that brought us here, and closes all the same.
            with contextlib.suppress(Exception):
                self._families.close()
            try:
                self._families = _open(self._path)
            except AlreadyOpenError as error:
                # A thread of this process is not done with what was open. The next write tries again.
                raise StorageError(_opened_again(self._path)) from error
            self._failed = False

    def _require_room(self) -> None:
        probe = self._path / _PROBE
        try:
            size_bytes = sum(each.stat().st_size for each in self._path.glob("*.log"))
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size_bytes + MIB)
        except OSError as error:
            raise StorageError(_full(self._path, error.strerror or str(error))) from error
        finally:
            probe.unlink(missing_ok=True)

    def _translate(self, error: Exception) -> TidegateIndexError:
        if isinstance(error, TidegateIndexError):
            return error
        if isinstance(error, DbClosedError):
            if self._closed:
                return ClosedError(f"the store in {self._path} is closed")
            return StorageError(_opened_again(self._path))
        text = str(error)
        if _is_corruption(error):
            return DamagedDirectoryError(str(self._path), text)
        if "No space left" in text or "File too large" in text:
            return StorageError(
                f"the disk of {self._path} is full: free some space, then it goes on ({text})"
            )
        return StorageError(f"the store in {self._path} fails: {text}")


def _is_corruption(error: Exception) -> bool:
    """Whether RocksDB has found damage: a checksum of its own that is wrong, a table that is not one."""
    return str(error).startswith("Corruption")


def _opened_again(path: Path) -> str:
    return f"the store in {path} is being opened again after a failed write"


def _full(path: Path, reason: str) -> str:
    return f"the disk of {path} is full: free some space, then it goes on ({reason})"


def _too_much_garbage(family: Rdict) -> bool:
    """Whether replaced and deleted values take so much room that writing the rest anew is worth it."""
    all_bytes = family.property_int_value("rocksdb.total-sst-files-size") or 0
    live_bytes = family.property_int_value("rocksdb.estimate-live-data-size") or 0
    return all_bytes - live_bytes > max(_GARBAGE_BYTES, live_bytes // _GARBAGE_SHARE)


class _Families:
    """An open database: one column family for the journal, the other for everything else."""

    def __init__(self, main: Rdict) -> None:
        self.main = main
        self.journal = main.get_column_family(_JOURNAL_FAMILY)
        self._handle: ColumnFamily | None = main.get_column_family_handle(_JOURNAL_FAMILY)

    def write_batch(self, batch: Batch) -> WriteBatch:
        """The operations of `batch`, each for its family."""
        made = WriteBatch(raw_mode=True)
        journal = self._handle
        if journal is None:
            # Without a handle, what belongs into the journal would silently go elsewhere.
            raise DbClosedError("the column families are closed")
        for kind, key, value in batch.operations:
            family = journal if key[:1] == JOURNAL else None
            if kind == Batch.PUT:
                made.put(key, value, family)
            elif kind == Batch.DELETE:
                made.delete(key, family)
            elif key[:1] == JOURNAL and value <= _AFTER_JOURNAL:
                made.delete_range(key, value, family)
            else:
                made.delete_range(key, value)
                if key < _AFTER_JOURNAL and value > JOURNAL:
                    made.delete_range(max(key, JOURNAL), min(value, _AFTER_JOURNAL), journal)
        return made

    def close(self) -> None:
        """Close the database: it stays open, and locked, as long as any part of it is."""
        self._handle = None
        try:
            self.journal.close()
        finally:
            self.main.close()


def _open(path: Path) -> _Families:
    try:
        _require_ours(path)
        journal = _options()
        journal.set_write_buffer_size(_JOURNAL_BUFFER_BYTES)
        # What reaches a table is dead by the next time: it is cheap to compact and a pity to keep.
        journal.set_level_zero_file_num_compaction_trigger(_JOURNAL_FILES_MAX)
        return _Families(Rdict(str(path), _options(), column_families={_JOURNAL_FAMILY: journal}))
    except TidegateIndexError:
        raise
    except Exception as error:
        text = str(error)
        if text.startswith(_IN_USE):
            raise AlreadyOpenError(str(path)) from error
        if "Permission denied" in text or "Read-only file system" in text:
            raise UnwritableDirectoryError(str(path), text) from error
        if _is_corruption(error):
            raise DamagedDirectoryError(str(path), text) from error
        raise StorageError(f"cannot open the data directory {path}: {text}") from error


def _require_ours(path: Path) -> None:
    """Look at a database without our column family before it gets one: one that is not ours is left alone."""
    if not (path / "CURRENT").exists() or _JOURNAL_FAMILY in Rdict.list_cf(str(path)):
        return
    found = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        if found.get(FORMAT_KEY) is None and next(iter(found.keys()), None) is not None:
            raise ForeignDirectoryError(str(path))
    finally:
        found.close()


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # Blocks are packed already, and the rest is small or short-lived.
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    # The kernel writes back as we go, so that the synced commit at the end of a persist has little to do.
    options.set_wal_bytes_per_sync(_WAL_BYTES_PER_SYNC)
    options.set_bytes_per_sync(_WAL_BYTES_PER_SYNC)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(_LOG_FILES_MAX)
    # Without a size one file takes everything said while the process lives.
    options.set_max_log_file_size(_LOG_FILE_BYTES)
    options.set_max_open_files(_OPEN_FILES_MAX)
    table = BlockBasedOptions()
    # A block is read once; the cache is for index blocks and small records.
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options
