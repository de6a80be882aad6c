"""The results that are kept in the repository: as `save` writes them, and not too large together."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.results import RESULTS, load, text_of

KEPT = sorted(RESULTS.glob("*.json"))
KEPT_BYTES_MAX = 1 << 20


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_result_is_kept_as_it_is_saved(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == text_of(load(path))


def test_all_that_is_kept_is_a_megabyte_at_most() -> None:
    sizes = {path.name: path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= KEPT_BYTES_MAX, sizes
