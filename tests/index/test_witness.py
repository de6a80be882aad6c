"""The witness: what it concludes, what it writes when, and that it never fails a commit."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.index.format.commits import Statement
from tidegate.index.rocks.directory import WITNESS_NAME
from tidegate.index.rocks.witness import Witness, judge


def slots(directory: Path) -> list[Statement]:
    content = (directory / WITNESS_NAME).read_bytes()
    return [Statement.decode(content[at : at + 25]) for at in (0, 4_096) if content[at : at + 2] == b"TG"]


def opened(directory: Path, recovered: int | None) -> Witness:
    made, loss = Witness.open(directory, recovered)
    assert loss is None
    return made


@pytest.mark.parametrize(
    ("found", "recovered", "lost"),
    [
        (None, None, None),  # a new directory, or one of before
        (None, 7, 0),  # deleted: it cannot be told
        (Statement(0), None, None),  # killed before the first commit
        (Statement(7), 7, None),
        (Statement(7), 8, None),  # killed between the sync and the witness, or a power cut
        (Statement(7), 5, 2),
        (Statement(7), None, 7),
        (Statement(8, 3, settled=False), 20, 3),  # killed before it was settled
        (Statement(8, 3, settled=False), 2, 3),
    ],
)
def test_what_it_concludes(found: Statement | None, recovered: int | None, lost: int | None) -> None:
    statement, loss = judge(found, recovered)
    assert (None if loss is None else loss.commits) == lost
    assert statement.settled == (loss is None)
    assert statement.lost == (lost or 0)


@given(
    found=st.none()
    | st.builds(Statement, st.integers(0, 99), st.integers(0, 99)).filter(lambda each: not each.lost)
    | st.builds(Statement, st.integers(0, 99), st.integers(0, 99), settled=st.just(False)),
    recovered=st.none() | st.integers(0, 99),
)
def test_numbers_never_go_back_and_a_loss_stays_until_it_is_settled(
    found: Statement | None, recovered: int | None
) -> None:
    statement, loss = judge(found, recovered)
    assert statement.commit >= max(recovered or 0, found.commit if found else 0)
    # Killed at once, whatever has become of the database: it is found again, and not made more or less.
    again, still = judge(statement, recovered)
    assert (still is None) == (loss is None)
    assert again.lost == statement.lost
    ahead, still = judge(statement, statement.commit + 5)
    assert (still is None) == (loss is None)
    assert ahead.lost == statement.lost


def test_it_says_what_was_synced(tmp_path: Path) -> None:
    made = opened(tmp_path, None)
    for commit in range(1, 10):
        made.advance(commit)
        assert max(slots(tmp_path)).commit == commit
    made.advance(4)  # another thread was slower
    assert max(slots(tmp_path)).commit == 9
    made.close()
    made.close()
    again = opened(tmp_path, 9)
    assert again.commit == 9
    again.close()


def test_one_slot_is_left_alone_from_sync_to_sync(tmp_path: Path) -> None:
    made = opened(tmp_path, None)
    for commit in range(1, 4):
        made.advance(commit)
    made.sync()
    for commit in range(4, 8):
        made.advance(commit)
        assert Statement(3) in slots(tmp_path)
    made.sync()
    made.advance(8)
    assert Statement(7) in slots(tmp_path)
    made.close()


def test_it_is_synced_now_and_then_and_not_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = opened(tmp_path, None)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for commit in range(1, 2_001):
        made.advance(commit)
    assert 2 <= len(synced) <= 10
    made.sync()
    made.sync()
    count = len(synced)
    made.close()
    assert len(synced) == count, "there was nothing left to sync"


def test_a_witness_that_cannot_be_written_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = opened(tmp_path, None)
    made.advance(1)
    os.close(made._descriptor)
    with caplog.at_level(logging.WARNING):
        for commit in (2, 3):
            made.advance(commit)
    assert len(caplog.records) == 1
    assert "may go unnoticed" in caplog.text
    made._descriptor = os.open(tmp_path / WITNESS_NAME, os.O_RDWR)
    made.advance(4)
    assert max(slots(tmp_path)).commit == 4
    made.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"important")
    (tmp_path / WITNESS_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        Witness.open(tmp_path, None)
    assert (tmp_path / "elsewhere").read_bytes() == b"important"
