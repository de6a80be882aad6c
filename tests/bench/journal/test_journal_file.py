"""The journal file of the bench: nothing durable is lost, a torn end is cut, damage is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.journal.journal_file import DamagedError, JournalFile, Row

Folders = pytest.TempPathFactory
ROWS: list[Row] = [(b"k%02d" % number, bytes([number]) * 40) for number in range(12)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Folders) -> Folders:
    return tmp_path_factory


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.stat().st_size)


def written(folder: Path, *, file_bytes: int = 1 << 20) -> JournalFile:
    journal = JournalFile(folder, file_bytes=file_bytes)
    for at in range(0, len(ROWS), 3):
        journal.write(ROWS[at : at + 3], sync=True)
    return journal


def test_rows_come_back_in_order_over_files_and_openings(tmp_path: Path) -> None:
    written(tmp_path, file_bytes=320).close()
    assert len(files(tmp_path)) == 2
    again = JournalFile(tmp_path)
    again.write([(b"last", b"")], sync=True)
    assert list(again.rows()) == [*ROWS, (b"last", b"")]
    again.close()


@given(st.data())
def test_of_a_torn_commit_nothing_counts(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    written(folder).close()
    (path,) = files(folder)
    size = path.stat().st_size
    kept = data.draw(st.integers(0, size))
    os.truncate(path, kept)
    again = JournalFile(folder)
    assert list(again.rows()) == ROWS[: kept * 4 // size * 3]
    again.close()


@given(st.integers(0, 10_000))
def test_one_wrong_bit_before_the_last_file_is_told(
    tmp_path_factory: pytest.TempPathFactory, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    written(folder, file_bytes=320).close()
    first = files(folder)[0]
    content = bytearray(first.read_bytes())
    bit %= len(content) * 8
    content[bit // 8] ^= 1 << bit % 8
    first.write_bytes(content)
    again = JournalFile(folder)
    with pytest.raises(DamagedError, match="cannot be read after byte"):
        list(again.rows())
    again.close()


def test_files_that_a_persist_covers_go(tmp_path: Path) -> None:
    journal = written(tmp_path, file_bytes=320)
    journal.trim(journal.number)
    assert list(journal.rows()) == ROWS[6:]
    journal.close()


def test_a_commit_that_could_not_be_synced_goes_to_the_next_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = written(tmp_path)
    with monkeypatch.context() as patched:

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output"):
            journal.write([(b"more", b"1")], sync=True)
    journal.write([(b"more", b"2")], sync=True)
    assert list(journal.rows()) == [*ROWS, (b"more", b"2")]
    assert len(files(tmp_path)) == 2
    journal.close()
