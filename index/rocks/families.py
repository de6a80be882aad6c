"""An open RocksDB: one column family for the journal, the other for everything else.

The journal makes up three quarters of all writes and is dead within seconds: alone, most of it dies in its
memtable (docs/decisions/journal-family.md). The families share one WAL, so a batch over both is atomic.

RocksDB recovers its WAL up to the first unreadable record and does not report the rest. So each synced batch
has a number, in the journal's family, where all but the last die in the memtable. And the manifest tracks the
closed WALs (rocksdb/OPTIONS-000001), so that a missing or shortened one shows.
"""

from __future__ import annotations

from pathlib import Path

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    ColumnFamily,
    DbClosedError,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
)

from tidegate.index.errors import (
    AlreadyOpenError,
    CorruptRecordError,
    DamagedDirectoryError,
    ForeignDirectoryError,
    TidegateIndexError,
)
from tidegate.index.format.commits import commit_record, decode_commit
from tidegate.index.format.envelope import unwrap
from tidegate.index.format.keys import COMMIT_KEY, FORMAT_KEY, JOURNAL
from tidegate.index.options import MIB
from tidegate.index.rocks import faults
from tidegate.index.rocks.directory import WITNESS_NAME
from tidegate.index.rocks.wal_walk import require_readable_manifests, stop_at_damage
from tidegate.index.store import Batch

AFTER_JOURNAL = bytes([JOURNAL[0] + 1])

_JOURNAL_FAMILY = "journal"
_WRITE_BUFFER_BYTES = 16 * MIB
_JOURNAL_BUFFER_BYTES = 32 * MIB
_JOURNAL_FILES_MAX = 2
_BLOCK_CACHE_BYTES = 8 * MIB
_WAL_BYTES_PER_SYNC = MIB // 2
_WAL_BYTES_MAX = 64 * MIB
_LOG_FILES_MAX = 4
_LOG_FILE_BYTES = 4 * MIB
_OPEN_FILES_MAX = 512
_OPTIONS = Path(__file__).parent / "rocksdb"
_IN_USE = ("IO error: lock hold by current process", "IO error: While lock file: ")
"""RocksDB's message, at its begin, that this process, or another one, has the directory open."""


class Families:
    """An open database of two column families."""

    def __init__(self, main: Rdict) -> None:
        self.main = main
        self.journal = main.get_column_family(_JOURNAL_FAMILY)
        self._handle: ColumnFamily | None = main.get_column_family_handle(_JOURNAL_FAMILY)

    def write_batch(self, batch: Batch) -> WriteBatch:
        """The operations of `batch`, each for its family."""
        made = WriteBatch(raw_mode=True)
        journal = self._journal_handle()
        for kind, key, value in batch.operations:
            family = journal if key[:1] == JOURNAL else None
            if kind == Batch.PUT:
                made.put(key, value, family)
            elif kind == Batch.DELETE:
                made.delete(key, family)
            elif key[:1] == JOURNAL and value <= AFTER_JOURNAL:
                made.delete_range(key, value, family)
            else:
                made.delete_range(key, value)
                if key < AFTER_JOURNAL and value > JOURNAL:
                    made.delete_range(max(key, JOURNAL), min(value, AFTER_JOURNAL), journal)
        return made

    def number(self, made: WriteBatch, commit: int) -> None:
        """Let `made` carry its commit's number."""
        made.put(COMMIT_KEY, commit_record(commit), self._journal_handle())

    def last_commit(self) -> int | None:
        """The last numbered batch's number, None without one.

        0 if damaged: then no batch is known to be there.
        """
        try:
            value = self.journal.get(COMMIT_KEY)
            return None if value is None else decode_commit(bytes(value))
        except CorruptRecordError:
            return 0
        except Exception as error:
            if faults.is_corruption(error):
                return 0
            raise

    def require_ours(self, path: Path) -> None:
        """Require a readable format record, unless the database is empty.

        path: the directory, for errors. Raises ForeignDirectoryError, DamagedDirectoryError.
        """
        try:
            record = self.main.get(FORMAT_KEY)
            if record is not None:
                unwrap(FORMAT_KEY[:1], bytes(record))
            elif any(next(iter(family.keys()), None) is not None for family in (self.main, self.journal)):
                raise ForeignDirectoryError(str(path))
        except CorruptRecordError as error:
            raise DamagedDirectoryError(str(path), f"its format version: {error}") from error

    def _journal_handle(self) -> ColumnFamily:
        if self._handle is None:
            # Without a handle, writes for the journal would silently go elsewhere.
            raise DbClosedError("the column families are closed")
        return self._handle

    def close(self) -> None:
        """Close the database; any part still in use keeps it open, and locked."""
        self._handle = None
        try:
            self.journal.close()
        finally:
            self.main.close()


def open_families(path: Path, *, compacts: bool = True) -> Families:
    """Open or create the database in directory `path`; unless it `compacts`, tables are read on demand only.

    Raises AlreadyOpenError, ForeignDirectoryError, UnwritableDirectoryError, DamagedDirectoryError,
    StorageError.
    """
    try:
        _require_ours(path)
        stop_at_damage(path)
        main, journal = _options(), _options()
        journal.set_write_buffer_size(_JOURNAL_BUFFER_BYTES)
        # A record that reaches a table is soon dead: cheap to compact, and not worth keeping.
        journal.set_level_zero_file_num_compaction_trigger(_JOURNAL_FILES_MAX)
        for options in (main, journal):
            options.set_disable_auto_compactions(not compacts)
        return Families(Rdict(str(path), main, column_families={_JOURNAL_FAMILY: journal}))
    except TidegateIndexError:
        raise
    except Exception as error:
        if str(error).startswith(_IN_USE):
            raise AlreadyOpenError(str(path)) from error
        raise faults.opening(path, error) from error


def _require_ours(path: Path) -> None:
    """Check a database without our column family before adding one: a foreign one stays untouched."""
    if (path / WITNESS_NAME).exists() or not (path / "CURRENT").exists():
        return
    require_readable_manifests(path)
    if _JOURNAL_FAMILY in Rdict.list_cf(str(path)):
        return
    found = Rdict(str(path), Options(raw_mode=True), access_type=AccessType.read_only())
    try:
        if found.get(FORMAT_KEY) is None and next(iter(found.keys()), None) is not None:
            raise ForeignDirectoryError(str(path))
    finally:
        found.close()


def _options() -> Options:
    options, _ = Options.load_latest(str(_OPTIONS))
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    # RocksDB's default, stated because all depends on it: a torn end is ignored, not refused.
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    # Blocks are packed already, and the rest is small or short-lived.
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_total_wal_size(_WAL_BYTES_MAX)
    # The kernel writes back continuously, so a persist's last, synced commit has little to do.
    options.set_wal_bytes_per_sync(_WAL_BYTES_PER_SYNC)
    options.set_bytes_per_sync(_WAL_BYTES_PER_SYNC)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(_LOG_FILES_MAX)
    # Without a limit one log file grows while the process lives.
    options.set_max_log_file_size(_LOG_FILE_BYTES)
    options.set_max_open_files(_OPEN_FILES_MAX)
    table = BlockBasedOptions()
    # A block is read once; the cache is for index blocks and small records.
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options
