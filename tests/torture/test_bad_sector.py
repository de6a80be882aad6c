"""A sector that cannot be read: what is in it is read from the topic again, all else comes in time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.torture.power_cuts import HERE, compiled

ENTRIES = 20_000
BLOCK_ENTRIES = 1_000


def test_a_bad_sector_costs_its_blocks_and_holds_nothing_else_up(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    done = subprocess.run(
        [sys.executable, str(HERE / "children" / "bad_sector.py"), str(tmp_path / "data"), str(bad)],
        env=os.environ | {"LD_PRELOAD": str(compiled(tmp_path, "bad_sector.c")), "BAD_SECTOR": str(bad)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    due, lost, both, held_is_due = done.stdout.split()
    assert int(due) + int(lost) == ENTRIES
    assert int(lost) == 2 * BLOCK_ENTRIES
    assert (both, held_is_due) == ("0", "True")
    assert "Input/output error; its positions will be read again" in done.stderr
