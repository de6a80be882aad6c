"""Power cuts of a real daemon, a bounded number of them: `make torture` runs them without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torture.disk import Disk, Operation, entries_of
from tests.torture.power_cuts import SETTINGS, Torture, TortureError, compiled, kept_directories
from tidegate.plugin.local.daemon import without_settings

CHILDREN = Path(__file__).parent / "children"
SEED = 20


@pytest.mark.parametrize("small", [True, False], ids=["small buffers", "as it is"])
def test_nothing_durable_is_gone_after_a_power_cut(tmp_path: Path, small: bool) -> None:
    torture = Torture(tmp_path, SEED + small, small=small)
    for _ in range(3 if small else 1):
        torture.round(cuts=7, rounds_of_frames=120)
    summary = torture.summary
    assert not summary.lost, kept_directories(summary)
    assert summary.cuts == (21 if small else 7)
    assert summary.durable_frames > 200 * summary.lives


@pytest.mark.parametrize(
    ("broken", "said"),
    [("unsynced", "are missing"), ("witness-first", "an honest power cut is called damage")],
)
def test_a_daemon_that_is_broken_is_found_out(tmp_path: Path, broken: str, said: str) -> None:
    """In the first 25 cuts nearly always; where they all missed, chance gets a second life."""
    torture = Torture(tmp_path, SEED, broken=broken)
    while not torture.summary.lost and torture.summary.lives < 2:
        torture.round(cuts=25, rounds_of_frames=120)
    assert any(said in each.what for each in torture.summary.lost), kept_directories(torture.summary)


def test_the_record_is_all_that_was_done(tmp_path: Path) -> None:
    """With nothing cut off, what is made of the record is what is there."""
    root = tmp_path / "root"
    root.mkdir()
    disk = Disk(root)
    record = tmp_path / "record"
    environment = without_settings(os.environ) | SETTINGS
    environment |= {
        "LD_PRELOAD": str(compiled(tmp_path)),
        "TORTURE_ROOT": str(root),
        "TORTURE_RECORD": str(record),
    }
    done = subprocess.run(
        [sys.executable, str(CHILDREN / "store.py"), str(root / "data")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    entries = list(entries_of(record.read_bytes()))
    assert {entry.operation for entry in entries} >= set(Operation) - {Operation.LINKED}
    for entry in entries:
        disk.replay(entry)
    assert len(list(root.rglob("*.sst"))) > 3
    assert disk.unrecorded(tmp_path) == []


def test_what_was_done_unrecorded_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "data").mkdir(parents=True)
    for name in ("changed", "gone", "kept"):
        (root / "data" / name).write_bytes(b"x")
    disk = Disk(root)
    (root / "data" / "changed").write_bytes(b"y")
    (root / "data" / "gone").unlink()
    (root / "data" / "made").mkdir()
    assert disk.unrecorded(tmp_path) == ["data/changed", "data/gone", "data/made"]


def test_a_killed_process_leaves_a_record_that_can_be_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    record = tmp_path / "record"
    environment = without_settings(os.environ) | {
        "LD_PRELOAD": str(compiled(tmp_path)),
        "TORTURE_ROOT": str(root),
        "TORTURE_RECORD": str(record),
    }
    code = (
        f"import os; file = open({str(root / 'a')!r}, 'wb'); file.write(b'x' * 100); file.flush(); os.abort()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    assert done.returncode == -signal.SIGABRT
    content = record.read_bytes()
    whole = list(entries_of(content))
    assert [entry.operation for entry in whole] == [Operation.CREATED, Operation.WRITTEN]
    assert list(entries_of(content[:-1])) == whole[:-1]


@pytest.mark.parametrize("name", ["ROUNDS", "SEED"])
def test_a_number_that_is_none_is_told_in_a_line(tmp_path: Path, name: str) -> None:
    environment = os.environ | {name: "-many", "TORTURE_DIR": str(tmp_path / "torture")}
    command = [sys.executable, "-m", "tests.torture.power_cuts"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"torture: {name} is a number, not -many\n")
    assert not (tmp_path / "torture").exists()


def test_without_a_compiler_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TortureError, match="a C compiler is needed"):
        compiled(tmp_path)
