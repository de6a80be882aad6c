"""The index in RocksDB: unusable directories, full disks, kill -9."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.support.catalogs import (
    NAME,
    OPTIONS,
    START_MS,
    damage,
    drained,
    flip_byte,
    opened,
    overwrite,
    positions_of,
    spread,
)
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import (
    AlreadyOpenError,
    ClosedError,
    CorruptRecordError,
    DamagedDirectoryError,
    ForeignDirectoryError,
    NewerFormatError,
    StorageError,
    UnwritableDirectoryError,
)
from tidegate.index.format import keys
from tidegate.index.format.envelope import FORMAT_VERSION, wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.options import IndexOptions
from tidegate.index.rocks.families import open_families
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.store import Batch

LARGE_BLOCKS = replace(OPTIONS, block_entries=65_536)
CHILDREN = Path(__file__).parent / "children"


def child(name: str, *arguments: str) -> subprocess.Popen[str]:
    """Start tests/index/children/`name`.py with its output in a pipe."""
    return subprocess.Popen(
        [sys.executable, str(CHILDREN / f"{name}.py"), *arguments], stdout=subprocess.PIPE, text=True
    )


def test_entries_come_back_after_closing(tmp_path: Path) -> None:
    catalog, index = opened(RocksStore.open(tmp_path / "made" / "on the way"))
    index.add(spread(5_000, 50_000))
    catalog.persist(NAME)
    index.add(spread(100, 50_000, ledger_id=6))
    catalog.close()
    with pytest.raises(ClosedError):
        catalog.commit()
    catalog, index = opened(RocksStore.open(tmp_path / "made" / "on the way"))
    index.check()
    assert len(drained(index)) == 5_100
    catalog.close()


def test_a_second_opening_is_refused(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    with pytest.raises(AlreadyOpenError, match="in use by another Tidegate daemon"):
        RocksStore.open(tmp_path)
    store.close()
    RocksStore.open(tmp_path).close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    process = child("hold_open", str(tmp_path))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(AlreadyOpenError):
            RocksStore.open(tmp_path)
    finally:
        process.kill()
        process.communicate()
    RocksStore.open(tmp_path).close()


def test_a_damaged_directory_is_not_taken_for_one_in_use(tmp_path: Path) -> None:
    path = tmp_path / "clock"
    RocksStore.open(path).close()
    (manifest,) = path.glob("MANIFEST-*")
    flip_byte(manifest)
    with pytest.raises(DamagedDirectoryError, match="move the directory away") as caught:
        RocksStore.open(path)
    assert str(path) in str(caught.value)


def test_a_directory_in_use_is_told_by_its_lock_not_by_its_name(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path / "clock")
    with pytest.raises(AlreadyOpenError):
        RocksStore.open(tmp_path / "clock")
    store.close()


def test_a_lock_file_that_cannot_be_opened_is_not_taken_for_one_in_use(tmp_path: Path) -> None:
    (tmp_path / "LOCK").mkdir()
    with pytest.raises(StorageError) as caught:
        RocksStore.open(tmp_path)
    assert not isinstance(caught.value, AlreadyOpenError)
    assert str(tmp_path) in str(caught.value)


def test_the_log_of_rocksdb_is_bounded(tmp_path: Path) -> None:
    RocksStore.open(tmp_path).close()
    (options,) = tmp_path.glob("OPTIONS-*")
    used = dict(line.strip().split("=", 1) for line in options.read_text().splitlines() if "=" in line)
    # A size of 0 is no bound.
    assert 0 < int(used["max_log_file_size"]) * int(used["keep_log_file_num"]) <= 32 << 20


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UnwritableDirectoryError, match="choose another directory"):
            RocksStore.open(path)


def test_a_directory_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(UnwritableDirectoryError, match="choose another directory"):
        RocksStore.open(Path("/proc/tidegate"))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, _ = opened(store)
    overwrite(store, keys.FORMAT_KEY, wrap(b"\0", (FORMAT_VERSION + 1).to_bytes(4, "little")))
    catalog.close()
    store = RocksStore.open(tmp_path)
    with pytest.raises(NewerFormatError, match=re.escape(str(tmp_path))):
        opened(store)
    store.close()


def test_someone_elses_database_is_refused(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    overwrite(store, b"someone", b"else")
    with pytest.raises(ForeignDirectoryError, match=re.escape(str(tmp_path))):
        opened(store)
    store.close()


def test_a_damaged_format_version_is_refused(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, _ = opened(store)
    damage(store, keys.FORMAT_KEY)
    catalog.close()
    store = RocksStore.open(tmp_path)
    with pytest.raises(DamagedDirectoryError, match=re.escape(str(tmp_path))):
        opened(store)
    store.close()


@pytest.mark.parametrize("kept", ["nothing", "LOCK", "IDENTITY", "CURRENT"])
def test_a_half_created_directory_is_used_or_refused_with_a_reason(tmp_path: Path, kept: str) -> None:
    """The process was killed while RocksDB was making its files."""
    store = RocksStore.open(tmp_path / "whole")
    store.close()
    half = tmp_path / "half"
    half.mkdir()
    if kept != "nothing":
        shutil.copy(tmp_path / "whole" / kept, half / kept)
    try:
        store = RocksStore.open(half)
    except StorageError as error:
        assert str(half) in str(error)
    else:
        catalog, index = opened(store)
        index.add(spread(10, 100))
        catalog.close()
        catalog, index = opened(RocksStore.open(half))
        assert len(drained(index)) == 10
        catalog.close()


def test_a_corrupt_block_in_rocksdb(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store)
    index.add(spread(1_000, 10_000))
    catalog.persist(NAME)
    key, _ = list(store.scan(*keys.kind_range(keys.BLOCK)))[4]
    damage(store, key)
    popped = drained(index)
    for _ in range(3):
        catalog.maintain(START_MS)
    assert len(popped) + len(index.take_unheld()) == 1_000
    catalog.close()


def damaged_table(path: Path, entries: int = 40_000) -> Entries:
    """A closed data directory with entries in several slices, and a wrong bit in the middle of its table."""
    catalog, index = opened(RocksStore.open(path), LARGE_BLOCKS)
    index.add(added := spread(entries, 8_000))
    catalog.persist(NAME)
    catalog.close()
    table = max(path.glob("*.sst"), key=lambda each: each.stat().st_size)
    flip_byte(table)
    return added


def test_damage_below_the_checksums_of_rocksdb_is_quarantined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    added = damaged_table(tmp_path)
    catalog, index = opened(RocksStore.open(tmp_path), LARGE_BLOCKS)
    popped = drained(index, limit=10_000)
    assert "checksum mismatch" in caplog.text
    for _ in range(3):
        catalog.maintain(START_MS)
    lost = index.take_unheld()
    assert 0 < len(lost) < len(added) // 4
    assert positions_of(popped) == index.state.held
    assert len(popped) + len(lost) == len(added)
    assert index.stats().blocks_quarantined == 1
    index.check()
    # They are read again, and it goes on undisturbed.
    index.add(added.take(lost.contains(added)))
    assert positions_of(drained(index, limit=10_000)) == lost
    catalog.persist(NAME)
    catalog.close()


def test_a_scan_does_not_end_early_at_damage(tmp_path: Path) -> None:
    """The keys after the damage are there: an index without them would use their ids again."""
    damaged_table(tmp_path)
    store = RocksStore.open(tmp_path)
    with pytest.raises(DamagedDirectoryError) as caught:
        list(store.scan(b"", b"\xff" * 40))
    assert str(tmp_path) in str(caught.value)
    assert "move the directory away" in str(caught.value)
    assert "nothing is lost" in str(caught.value)
    store.close()


def test_a_scan_reads_nothing_after_its_end(tmp_path: Path) -> None:
    damaged_table(tmp_path)
    store = RocksStore.open(tmp_path)
    rows = [key for kind in b"AHJMST" for key, _ in store.scan(*keys.kind_range(bytes([kind])))]
    assert len(rows) == 1 + 8 + 2  # one bitmap, eight slices, identity and state
    store.close()


def test_records_damaged_below_the_checksums_of_rocksdb_are_not_opened(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store)
    for at in range(100):
        index.add(spread(50, 8_000, ledger_id=at))
        catalog.commit()
        index.mark_delete(at, 10)
        catalog.commit()
    store.close()
    table = max(tmp_path.glob("*.sst"), key=lambda each: each.stat().st_size)
    flip_byte(table)
    store = RocksStore.open(tmp_path)
    with pytest.raises(DamagedDirectoryError, match="move the directory away") as caught:
        opened(store)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(CorruptRecordError, match="checksum"):
        for sequence in range(1, 200):
            for record_type in (1, 4):
                store.get(keys.journal_key(1, sequence, record_type))
    store.close()


def test_a_compaction_that_meets_damage_says_what_to_do(tmp_path: Path) -> None:
    damaged_table(tmp_path)
    store = RocksStore.open(tmp_path)
    batch = Batch()
    batch.put(keys.block_key(1, SliceId(1_000, 0), 1), b"below everything in the table")
    batch.put(b"\xfe", b"above everything in the table")
    store.write(batch, sync=True)
    store._families.main.flush()
    with contextlib.suppress(Exception):
        store._families.main.compact_range(None, None)
    with pytest.raises(DamagedDirectoryError, match="move the directory away"):
        store.write(batch, sync=True)
    with pytest.raises(DamagedDirectoryError):
        store.close()


def test_a_scan_under_way_does_not_keep_a_store_from_being_opened_again(tmp_path: Path) -> None:
    """A snapshot for an index log takes as long as the log's home does. Nobody else may wait for that."""
    store = RocksStore.open(tmp_path)
    batch = Batch()
    for key in (b"a", b"b", b"c"):
        batch.put(key, b"1")
    store.write(batch, sync=True)
    reading = store.scan(b"", b"\xff")
    next(reading)
    store._failed = True
    store.write(batch, sync=True)
    assert store.get(b"a") == b"1"
    with pytest.raises(StorageError, match="opened again after a failed write"):
        next(reading)
    assert len(list(store.scan(b"", b"d"))) == 3
    store.close()


def test_a_store_that_cannot_be_opened_again_at_once_is_not_called_in_use_by_another_daemon(
    tmp_path: Path,
) -> None:
    """It cannot while another thread is in a call of the former database."""
    store = RocksStore.open(tmp_path)
    batch = Batch()
    batch.put(b"a", b"1")
    store.write(batch, sync=True)
    busy = store._families.main.iter()
    store._failed = True
    with pytest.raises(StorageError, match="opened again after a failed write") as caught:
        store.write(batch, sync=True)
    assert not isinstance(caught.value, AlreadyOpenError)
    del busy, caught
    store.write(batch, sync=True)
    assert store.get(b"a") == b"1"
    store.close()


def test_a_full_disk_is_reported_and_nothing_durable_is_lost(tmp_path: Path) -> None:
    """A child process with a limit on its files adds until the store refuses, then gets room."""
    process = child("fill_disk", str(tmp_path))
    output, _ = process.communicate()
    assert process.returncode == 0, output
    lines = output.splitlines()
    assert any("size limit of this process: raise it" in line for line in lines)
    durable = int(lines[-1].removeprefix("durable "))
    catalog, index = opened(RocksStore.open(tmp_path))
    index.check()
    assert len(index.state.held) == len(drained(index)) >= durable > 0
    catalog.close()


def test_kill_9_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    """Each life of a child adds, persists and compacts until killed; its durable entries are there."""
    acknowledged, durable, compacted = 0, 0, 0
    for life in range(4):
        process = child("add_until_killed", str(tmp_path), str(durable))
        assert process.stdout is not None
        lines = 15 + 40 * life
        for line in process.stdout:
            durable, acknowledged, compacted = map(int, line.split())
            lines -= 1
            if lines == 0:
                os.kill(process.pid, signal.SIGKILL)
        for line in process.communicate()[0].splitlines():
            durable, acknowledged, compacted = map(int, line.split())
        process.stdout.close()
        catalog, index = opened(RocksStore.open(tmp_path))
        index.check()
        held = index.state.held.snapshot()
        everything = set(held) | set(index.state.acknowledged)
        assert {(at // 1_000, at % 1_000) for at in range(durable)} <= everything
        assert {(at // 1_000, at % 1_000) for at in range(acknowledged)} <= set(index.state.acknowledged)
        durable = len(everything)
        assert len(drained(index, limit=10_000)) == len(held)
        catalog.close()
    assert compacted, "it was killed amid compactions too"


def test_a_directory_with_the_journal_among_the_rest_is_opened(tmp_path: Path) -> None:
    """As directories were before the journal had its own column family."""
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store)
    index.add(spread(500, 8_000))
    catalog.commit()
    records = dict(store.scan(*keys.kind_range(keys.JOURNAL)))
    assert records
    store.close()
    old = open_families(tmp_path)
    for key, value in records.items():
        old.main.put(key, value)
        old.journal.delete(key)
    old.close()
    store = RocksStore.open(tmp_path)
    assert dict(store.scan(*keys.kind_range(keys.JOURNAL))) == records
    assert dict(store.scan(b"", b"\xff")).items() >= records.items()
    catalog, index = opened(store)
    assert len(index.state.held) == 500
    index.check()
    catalog.close()


def test_tidying_up_leaves_no_log_and_no_journal_to_repeat(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    catalog, index = opened(store, IndexOptions(slice_width_ms=3_600_000, carry_ms=0))
    added = spread(1_000_000, 86_400_000)
    for at in range(0, len(added), 10_000):
        index.add(added.part(at, at + 10_000))
        catalog.commit()
    catalog.persist(NAME)
    size_bytes = store.disk_bytes()
    catalog.maintain(START_MS)
    assert sum(path.stat().st_size for path in tmp_path.glob("*.log")) < 1 << 16
    assert store.disk_bytes() < size_bytes // 2
    store.close()
    catalog, index = opened(RocksStore.open(tmp_path))
    assert len(index.state.held) == len(added)
    index.check()
    catalog.close()


def test_a_refused_database_is_left_alone(tmp_path: Path) -> None:
    theirs = Rdict(str(tmp_path), Options(raw_mode=True))
    theirs[b"John"] = b"important"
    theirs.close()
    tmp_path.chmod(0o755)
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    before = {path.name: path.stat().st_mode for path in (tmp_path, *tmp_path.iterdir())}
    with pytest.raises(ForeignDirectoryError):
        RocksStore.open(tmp_path)
    after = {path.name: path.stat().st_mode for path in (tmp_path, *tmp_path.iterdir())}
    assert {name: after[name] for name in before.keys() & after.keys()} == {
        name: before[name] for name in before.keys() & after.keys()
    }
    assert tmp_path.name in after
    assert Rdict.list_cf(str(tmp_path)) == ["default"]
    theirs = Rdict(str(tmp_path), Options(raw_mode=True))
    assert theirs[b"John"] == b"important"
    theirs.close()


def test_closing_waits_for_tidying_up(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    for at in range(200):
        batch = Batch()
        batch.put(keys.journal_key(1, at + 1, 1), os.urandom(100_000))
        batch.put(keys.block_key(1, SliceId(1_000, at), 1), os.urandom(100_000))
        store.write(batch, sync=False)
    tidying = threading.Thread(target=store.tidy)
    tidying.start()
    store.close()
    tidying.join()
    RocksStore.open(tmp_path).close()
