"""The results that are kept in the repository: as `save` writes them, and not too large together."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.harness.results import RESULTS, load, text_of

KEPT = sorted(RESULTS.glob("*.json"))
KEPT_BYTES_MAX = 1_100_000
"""Of all files together: results, pictures, drills of two lines of Pulsar; the tables are made from them."""


def kept_files() -> list[Path]:
    """The folder's files as git has them; without git, as in an archive, all of them."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=RESULTS, check=False, capture_output=True, text=True
    )
    if listed.returncode != 0:
        return [path for path in RESULTS.rglob("*") if path.is_file()]
    return [RESULTS / name for name in listed.stdout.split("\0") if name]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_result_is_kept_as_it_is_saved(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == text_of(load(path))


def test_all_that_is_kept_is_a_megabyte_at_most() -> None:
    sizes = {
        path.relative_to(RESULTS).as_posix(): path.stat().st_size
        for path in kept_files()
        if path.suffix != ".md"
    }
    assert any(name.startswith("drills/") for name in sizes)
    assert {Path(name).suffix for name in sizes} >= {".json", ".svg"}
    assert sum(sizes.values()) <= KEPT_BYTES_MAX, sizes
