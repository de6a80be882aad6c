"""The data directory: private, ours, and nobody else's files in it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tidegate.index.errors import (
    AlreadyOpenError,
    DamagedDirectoryError,
    ForeignDirectoryError,
    OthersDirectoryError,
    StorageError,
    UnwritableDirectoryError,
)
from tidegate.index.format.keys import FORMAT_KEY
from tidegate.index.rocks import directory
from tidegate.index.rocks.families import Families
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.store import Batch


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def content_of(path: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(path)): (mode_of(each), each.read_bytes() if each.is_file() else b"")
        for each in path.rglob("*")
    }


def written(path: Path, value: bytes = b"1") -> None:
    store = RocksStore.open(path, {"tidegate.sock"})
    batch = Batch()
    batch.put(b"S", value)
    store.write(batch, sync=True)
    store.close()


def test_a_new_directory_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        written(tmp_path / "on" / "the" / "way")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "on" / "the" / "way") == 0o700


def test_an_existing_one_is_made_private_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "data")
    (tmp_path / "elsewhere").write_text("not in it")
    (tmp_path / "elsewhere").chmod(0o644)
    (tmp_path / "data" / "LOG.old.1").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data").chmod(0o755)
    for each in (tmp_path / "data").iterdir():
        if not each.is_symlink():
            each.chmod(0o644)
    there = [each for each in (tmp_path / "data").iterdir() if not each.is_symlink()]
    caplog.clear()
    RocksStore.open(tmp_path / "data").close()
    assert mode_of(tmp_path / "data") == 0o700
    assert {mode_of(each) for each in there if each.exists()} == {0o600}, "but what RocksDB makes later"
    assert mode_of(tmp_path / "elsewhere") == 0o644, "links are not followed"
    assert len(caplog.records) == 1
    assert str(tmp_path / "data") in caplog.text
    caplog.clear()
    RocksStore.open(tmp_path / "data").close()
    assert not caplog.records


@pytest.mark.parametrize("name", ["notes.txt", "data.db", ".hidden", "a\nname", "000004.logs", "docs/"])
def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path, name: str) -> None:
    tmp_path.chmod(0o755)
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("important")
    before = content_of(tmp_path)
    with pytest.raises(ForeignDirectoryError, match="not a Tidegate index") as caught:
        RocksStore.open(tmp_path)
    assert "choose another data directory" in str(caught.value)
    assert ascii(name.rstrip("/")) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert content_of(tmp_path) == before
    assert mode_of(tmp_path) == 0o755


def test_of_many_files_some_are_named(tmp_path: Path) -> None:
    for at in range(100):
        (tmp_path / f"file-{at:03}").touch()
    with pytest.raises(ForeignDirectoryError) as caught:
        RocksStore.open(tmp_path)
    assert "'file-000', 'file-001', 'file-002', …" in str(caught.value)


def test_a_fresh_file_system_is_not_something_else(tmp_path: Path) -> None:
    """mkfs makes lost+found; the socket may be in the same directory."""
    (tmp_path / "lost+found").mkdir(mode=0o700)
    (tmp_path / "tidegate.sock").touch()
    with pytest.raises(ForeignDirectoryError, match=r"tidegate\.sock"):
        RocksStore.open(tmp_path)
    RocksStore.open(tmp_path, {"tidegate.sock"}).close()
    (tmp_path / "notes.txt").touch()
    RocksStore.open(tmp_path).close()  # what an operator puts beside an index is not ours to refuse


def test_somebody_elses_database_is_left_alone_whatever_its_wals_are_like(tmp_path: Path) -> None:
    """Recycled WALs have types that would be damage in ours."""
    options = Options(raw_mode=True)
    options.set_recycle_log_file_num(2)
    theirs = Rdict(str(tmp_path), options)
    theirs[b"John"] = b"important"
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.log")}
    assert any(content[6] == 5 for content in before.values())
    copy = tmp_path.parent / f"{tmp_path.name}-copy"
    copy.mkdir()
    for path in tmp_path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    theirs.close()
    with pytest.raises(ForeignDirectoryError):
        RocksStore.open(copy)
    assert {path.name: path.read_bytes() for path in copy.glob("*.log")} == before


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    tmp_path.chmod(0o777)
    with pytest.raises(OthersDirectoryError, match=f"uid {owner}") as caught:
        RocksStore.open(tmp_path)
    assert "chown" in str(caught.value)
    assert not list(tmp_path.iterdir())
    assert mode_of(tmp_path) == 0o777


def test_what_is_made_on_the_way_is_synced(tmp_path: Path) -> None:
    """Durable data is lost with its directory."""
    code = (
        "import os, sys, pathlib\n"
        "from tidegate.index.rocks import directory\n"
        "real, synced = os.fsync, set()\n"
        "os.fsync = lambda handle: (synced.add(os.readlink(f'/proc/self/fd/{handle}')), real(handle))\n"
        "directory.prepare(pathlib.Path(sys.argv[1]))\n"
        "print(*sorted(synced), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a" / "b" / "c")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]


def test_a_link_to_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnwritableDirectoryError, match="choose another directory"):
        RocksStore.open(tmp_path / "data")


def test_what_is_damaged_is_moved_aside_and_a_new_store_can_be_made(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "tidegate.sock").touch()
    (tmp_path / "lost+found").mkdir()
    for value in (b"1", b"2"):
        written(tmp_path, value)
        before = set(tmp_path.iterdir())
        aside = directory.move_aside(tmp_path)
        assert aside is not None
        assert {each.name for each in tmp_path.iterdir()} == {"tidegate.sock", "lost+found", aside.name}
        assert {each.name for each in aside.iterdir()} == {
            each.name for each in before if each.name not in {"tidegate.sock", "lost+found", aside.name}
        }
        assert mode_of(aside) == 0o700
        moved = RocksStore.open(aside)
        assert moved.get(b"S") == value, "the last one is kept, as it was"
        moved.close()
        fresh = RocksStore.open(tmp_path, {"tidegate.sock"})
        assert fresh.get(b"S") is None
        assert fresh.loss() is None, "nothing of the former one is missed"
        fresh.close()


def test_a_directory_in_use_stays_as_it_is(tmp_path: Path) -> None:
    store = RocksStore.open(tmp_path)
    (tmp_path / "LOCK").unlink()  # and with it RocksDB's own lock
    before = content_of(tmp_path)
    with pytest.raises(AlreadyOpenError):
        RocksStore.open(tmp_path)
    with pytest.raises(AlreadyOpenError):
        directory.move_aside(tmp_path)
    assert content_of(tmp_path) == before
    store.close()
    assert directory.move_aside(tmp_path) is not None


def test_where_directories_have_no_locks_a_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_lock(descriptor: int, operation: int) -> None:
        raise OSError(errno.EBADF, "as on NFS")

    monkeypatch.setattr("fcntl.flock", no_lock)
    store = RocksStore.open(tmp_path)
    with pytest.raises(AlreadyOpenError):
        RocksStore.open(tmp_path)
    store.close()


def test_what_is_not_known_to_be_ours_is_not_moved(tmp_path: Path) -> None:
    database = Rdict(str(tmp_path), Options(raw_mode=True))
    database[b"theirs"] = b"1"
    database.close()
    before = content_of(tmp_path)
    assert directory.move_aside(tmp_path) is None
    assert content_of(tmp_path) == before


def test_a_damaged_directory_without_a_witness_is_told_as_that_whatever_closing_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, batch = RocksStore.open(tmp_path), Batch()
    batch.put(FORMAT_KEY, b"garbage")
    store.write(batch, sync=True)
    store.close()
    (tmp_path / directory.WITNESS_NAME).unlink()
    close = Families.close

    def close_and_repeat(families: Families) -> None:
        close(families)
        raise OSError("Corruption: as when a compaction has met it")

    monkeypatch.setattr(Families, "close", close_and_repeat)
    with pytest.raises(DamagedDirectoryError) as caught:
        RocksStore.open(tmp_path)
    assert str(caught.value).startswith(f"the data directory {tmp_path} is damaged (its format version: ")
    assert not (tmp_path / directory.WITNESS_NAME).exists()


def test_a_move_that_was_cut_off_is_made_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any moment of it; no part of the former store counts then."""
    rename = Path.rename
    whole = tmp_path / "whole"
    written(whole)
    for moves in range(len(list(whole.iterdir()))):
        data = tmp_path / str(moves)
        shutil.copytree(whole, data)
        left = moves

        def cut_off(path: Path, target: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "the power is cut")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", cut_off)
        with pytest.raises(StorageError):
            directory.move_aside(data)
        monkeypatch.setattr(Path, "rename", rename)
        try:
            store = RocksStore.open(data)
        except DamagedDirectoryError:
            assert directory.move_aside(data) is not None
            store = RocksStore.open(data)
        if moves:
            assert store.get(b"S") is None or store.loss() is None
        store.close()
