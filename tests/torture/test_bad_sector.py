"""A sector that cannot be read: what is in it is read from the topic again, all else comes in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.torture.power_cuts import HERE, compiled

ENTRIES = 20_000
BLOCK_ENTRIES = 1_000


def run_child(tmp_path: Path, name: str) -> subprocess.CompletedProcess[str]:
    """A program that says itself which sector is bad, and when."""
    bad = tmp_path / "bad"
    return subprocess.run(
        [sys.executable, str(HERE / "children" / name), str(tmp_path / "data"), str(bad)],
        env=os.environ | {"LD_PRELOAD": str(compiled(tmp_path, "bad_sector.c")), "BAD_SECTOR": str(bad)},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_a_bad_sector_costs_its_blocks_and_holds_nothing_else_up(tmp_path: Path) -> None:
    done = run_child(tmp_path, "bad_sector.py")
    assert done.returncode == 0, done.stderr
    due, lost, both, held_is_due, *snapshot = done.stdout.split()
    assert int(due) + int(lost) == ENTRIES
    assert int(lost) == 2 * BLOCK_ENTRIES
    assert (both, held_is_due) == ("0", "True")
    assert snapshot == [str(ENTRIES // BLOCK_ENTRIES - 2), "2"], "blocks in the snapshot, and left out"
    assert "Input/output error; its positions come from its log, or are read again" in done.stderr


def test_a_bad_sector_in_the_way_of_a_compaction_ends_the_compactions_and_nothing_else(
    tmp_path: Path,
) -> None:
    done = run_child(tmp_path, "bad_table.py")
    assert done.returncode == 0, done.stderr
    *counts, before, disabled = done.stdout.split()
    assert (before, disabled) == ("False", "True")
    failed, due, lost, added = map(int, counts)
    assert failed <= 2, done.stderr
    assert due + lost == added
    assert lost == 2 * BLOCK_ENTRIES
    said = [line for line in done.stderr.splitlines() if "nothing is compacted any more" in line]
    assert len(said) == 1, done.stderr
    assert "move the directory away" in said[0]
