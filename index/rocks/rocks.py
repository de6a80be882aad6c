"""A store in RocksDB; it translates all its errors. In `index/`, only this and `families` import rocksdict.

A failed write makes RocksDB read-only, so the next write first reopens the database, then repeats the batch.
If the cause is an unreadable table that RocksDB wanted to compact, it would recur for ever: from then on
nothing is compacted, which costs disk space and no commit.

Synced batches are numbered in the WAL's order, and after opening the witness shows any loss.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

from rocksdict import DbClosedError, Rdict, RdictIter, ReadOptions, WriteOptions

from tidegate.index.errors import (
    AlreadyOpenError,
    ClosedError,
    CorruptRecordError,
    DamagedDirectoryError,
    LostCommitsError,
    StorageError,
    TidegateIndexError,
)
from tidegate.index.format.keys import JOURNAL
from tidegate.index.options import MIB
from tidegate.index.rocks import directory, faults
from tidegate.index.rocks.families import AFTER_JOURNAL, Families, open_families
from tidegate.index.rocks.witness import Witness
from tidegate.index.store import Batch, Loss

_LOG = logging.getLogger(__name__)
_GARBAGE_BYTES = 8 * MIB
_GARBAGE_SHARE = 20
_TIDY_BYTES = 4 * MIB
_REPLACED = "its directory was deleted or replaced"
_LOCK = "LOCK"  # the one file that RocksDB never replaces


class _Reading:
    """A scan on its way; closing the database ends it, in any thread."""

    def __init__(self, rows: RdictIter, bounded: ReadOptions) -> None:
        # The iterator has only a pointer to its bound: freed early, keys are missing.
        self._held: tuple[RdictIter, ReadOptions] | None = (rows, bounded)

    def end(self) -> None:
        self._held = None

    def next_row(self) -> tuple[bytes, bytes] | None:
        """The next row, None after the last. Raises DbClosedError if the scan was ended."""
        held = self._held
        if held is None:
            raise DbClosedError("the database was closed while it was read")
        rows = held[0]
        if not rows.valid():
            rows.status()
            return None
        row = cast(bytes, rows.key()), cast(bytes, rows.value())
        rows.next()
        return row


class RocksStore:
    """An ordered key-value store in a directory; see `Store`."""

    def __init__(
        self,
        path: Path,
        families: Families,
        witness: Witness,
        loss: Loss | None,
        lock: directory.DirectoryLock,
    ) -> None:
        self._path = path
        self._directory_lock = lock
        self._lock_inode = (path / _LOCK).stat().st_ino
        self._families = families
        self._witness = witness
        self._loss = loss
        self._commit = witness.commit
        self._numbering = threading.Lock()
        self._failed = False
        self._compacts = True
        self._written_bytes = 0
        self._closed = False
        self._lock = threading.Lock()
        self._readings: weakref.WeakSet[_Reading] = weakref.WeakSet()
        self._readings_lock = threading.Lock()
        self._unsynced = WriteOptions()

    def __str__(self) -> str:
        return str(self._path)

    @classmethod
    def open(cls, path: Path, beside: Collection[str] = ()) -> RocksStore:
        """Open or create the database in directory `path`; `beside` names other files allowed there.

        Raises UnwritableDirectoryError, OthersDirectoryError, ForeignDirectoryError, AlreadyOpenError,
        DamagedDirectoryError, StorageError. A refused directory gets no witness.
        """
        lock = directory.prepare(path, beside)
        try:
            return cls._opened(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _opened(cls, path: Path, lock: directory.DirectoryLock) -> RocksStore:
        witnessed = directory.is_witnessed(path)
        families = open_families(path)
        try:
            if not witnessed:
                # The witness marks the directory as ours: be certain first.
                families.require_ours(path)
            directory.close_to_others(path)
            witness, loss = Witness.open(path, families.last_commit())
        except Exception as error:
            # Closing may repeat the error.
            with contextlib.suppress(Exception):
                families.close()
            if isinstance(error, TidegateIndexError):
                raise
            raise faults.opening(path, error) from error
        store = cls(path, families, witness, loss, lock)
        try:
            store._move_journal()
        except Exception as error:
            store.close()
            raise store._translate(error) from error
        return store

    @staticmethod
    def move_aside(path: Path) -> Path | None:
        """See `directory.move_aside`."""
        return directory.move_aside(path)

    @staticmethod
    def aside_bytes(path: Path) -> int:
        """See `directory.aside_bytes`."""
        return directory.aside_bytes(path)

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, None if there is none. Raises CorruptRecordError if it is damaged."""
        try:
            families = self._families
            value = (families.journal if key[:1] == JOURNAL else families.main).get(key)
        except Exception as error:
            if faults.is_unreadable(error):
                raise CorruptRecordError(f"a value in {self._path} cannot be read: {error}") from error
            raise self._translate(error) from error
        return None if value is None else bytes(value)

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Apply `batch` atomically; with `sync` it and every earlier write are durable on return."""
        if self._failed:
            self._open_again()
        families = self._families
        # No lock while the disk syncs: a commit must not wait for another thread's write. If that thread
        # fails and reopens the database, this write fails too, and is tried again.
        try:
            made = families.write_batch(batch)
            if sync:
                with self._numbering:
                    # A number is never given twice, even if its batch's fate is unknown.
                    self._commit += 1
                    commit = self._commit
                    families.number(made, commit)
                    families.main.write(made, self._unsynced)
                # A synced write would hold the interpreter lock while the disk works.
                families.main.flush_wal(True)
                self._require_directory()
                self._witness.advance(commit)
            else:
                families.main.write(made, self._unsynced)
            self._written_bytes += batch.size_bytes
        except LostCommitsError:
            raise  # opening it again would not restore it
        except Exception as error:
            self._failed = not self._closed
            self._compact_no_more(error)
            raise self._translate(error) from error

    def _compact_no_more(self, error: Exception) -> None:
        if self._compacts and faults.is_bad_table(error):
            self._compacts = False
            _LOG.error(
                "a table in %s cannot be read (%s): until the next start nothing is compacted any more, and "
                "it grows. See the kernel's log; stop the daemon, move the directory away, start it with an "
                "empty one on a good disk: the topics are read again, nothing is lost",
                self._path,
                error,
            )

    def _require_directory(self) -> None:
        """Require the directory: deleted files accept writes as before, and are lost."""
        try:
            there = (self._path / _LOCK).stat().st_ino == self._lock_inode
        except FileNotFoundError:
            there = False
        if not there:
            raise LostCommitsError(str(self._path), _REPLACED)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start <= key < end, keys ascending, as they are now.

        Raises DamagedDirectoryError if RocksDB cannot read on: all later keys are unknown then.
        """
        families = self._families
        parts = [
            self._scan(family, max(start, low), min(end, high))
            for family, low, high in (
                (families.main, b"", JOURNAL),
                (families.journal, JOURNAL, AFTER_JOURNAL),
                (families.main, AFTER_JOURNAL, end),
            )
            if start < high and low < end
        ]
        return itertools.chain.from_iterable(parts)

    def _scan(self, family: Rdict, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        # Without the bound RocksDB reads, and fails, beyond the range.
        bounded = ReadOptions()
        bounded.set_iterate_upper_bound(end)
        try:
            # To Rdict.items damage looks like the end, and iterators of Rdict.snapshot see later writes. An
            # iterator sees the state of its creation, so it is created at once.
            rows = family.iter(bounded)
            rows.seek(start)
        except Exception as error:
            raise self._translate(error) from error
        reading = _Reading(rows, bounded)
        with self._readings_lock:
            self._readings.add(reading)
        return self._rows(reading)

    def _rows(self, reading: _Reading) -> Iterator[tuple[bytes, bytes]]:
        while True:
            try:
                row = reading.next_row()
            except Exception as error:
                raise self._translate(error) from error
            if row is None:
                return
            yield row

    def loss(self) -> Loss | None:
        """The synced writes missing at the opening."""
        return self._loss

    def settle_loss(self) -> None:
        """Note that the loss's consequences are durable. Raises StorageError if the write fails."""
        if self._loss is not None:
            # The witness tells newer from older only by a higher number.
            self.write(Batch(), sync=True)
            self._witness.settle()
            self._loss = None

    def tidy(self) -> None:
        """Write RocksDB's memory into tables: the WAL can go, and opening has nothing to repeat.

        Call it when the journal is short: its dead records never reach a table then.
        """
        if self._written_bytes < _TIDY_BYTES:
            return
        # Closed during a call, RocksDB would stay half open, and locked.
        with self._lock:
            if self._failed or self._closed or not self._compacts:
                return
            self._written_bytes = 0
            families = self._families
            try:
                families.main.flush()
                families.journal.flush()
                families.journal.compact_range(None, None)
                if _too_much_garbage(families.main):
                    families.main.compact_range(None, None)
                self._witness.sync()
            except Exception as error:
                raise self._translate(error) from error

    def compacts(self) -> bool:
        """False once RocksDB has met an unreadable table."""
        return self._compacts

    def disk_bytes(self) -> int:
        """Bytes of the database's files."""
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
                finally:
                    self._witness.close()
                    self._directory_lock.release()

    def _move_journal(self) -> None:
        """Move the journal to its own family: old directories have it among everything else."""
        batch = Batch()
        families = self._families
        for key, value in self._scan(families.main, JOURNAL, AFTER_JOURNAL):
            batch.put(key, value)
        if len(batch):
            made = families.write_batch(batch)
            made.delete_range(JOURNAL, AFTER_JOURNAL)
            families.main.write(made, self._unsynced)
            families.main.flush_wal(True)

    def _open_again(self) -> None:
        with self._lock:
            if not self._failed or self._closed:
                return
            if not (self._path / _LOCK).exists():
                # Perhaps the cause of the failed write. Opening here would open another database.
                raise LostCommitsError(str(self._path), _REPLACED)
            # Opening writes the WAL into tables. Without room the database would stay closed; as it is, it
            # can at least be read.
            self._require_room()
            self._end_readings()
            # Closing repeats the earlier error, and closes all the same.
            with contextlib.suppress(Exception):
                self._families.close()
            try:
                self._families = open_families(self._path, compacts=self._compacts)
            except AlreadyOpenError as error:
                # A thread of this process still uses the database. The next write tries again.
                raise StorageError(_opened_again(self._path)) from error
            except DamagedDirectoryError as error:
                # Another try would be in vain; a start handles this case.
                raise LostCommitsError(str(self._path), error.reason) from error
            try:
                loss = self._witness.accuse(self._families.last_commit())
            except Exception as error:
                raise self._translate(error) from error
            if loss is not None:
                # The state in memory builds on the lost writes. A start forgets all uncertain state.
                raise LostCommitsError(str(self._path), loss.reason)
            self._failed = False

    def _end_readings(self) -> None:
        """End all scans half-way: an open iterator keeps the database open, and locked."""
        with self._readings_lock:
            readings = list(self._readings)
            self._readings.clear()
        for each in readings:
            each.end()

    def _require_room(self) -> None:
        probe = self._path / directory.PROBE_NAME
        try:
            size_bytes = sum(each.stat().st_size for each in self._path.glob("*.log"))
            with probe.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size_bytes + MIB)
        except OSError as error:
            raise faults.running(self._path, error) from error
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def _translate(self, error: Exception) -> TidegateIndexError:
        if isinstance(error, TidegateIndexError):
            return error
        if isinstance(error, DbClosedError):
            if self._closed:
                return ClosedError(f"the store in {self._path} is closed")
            return StorageError(_opened_again(self._path))
        return faults.running(self._path, error)


def _opened_again(path: Path) -> str:
    return f"the store in {path} is being opened again after a failed write"


def _too_much_garbage(family: Rdict) -> bool:
    """True if replaced and deleted values take so much room that rewriting the rest is worth it."""
    all_bytes = family.property_int_value("rocksdb.total-sst-files-size") or 0
    live_bytes = family.property_int_value("rocksdb.estimate-live-data-size") or 0
    return all_bytes - live_bytes > max(_GARBAGE_BYTES, live_bytes // _GARBAGE_SHARE)
