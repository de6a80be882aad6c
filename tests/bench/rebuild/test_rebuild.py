"""The bench rebuild refuses before it begins."""

from __future__ import annotations

import sys

import pytest
from rich.console import Console

from bench.harness import driver
from bench.harness.errors import BenchError
from bench.rebuild import bench as rebuild


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "google", "google.protobuf"])
def test_what_is_not_installed_is_said_at_once_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for loaded in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BenchError, match=rf"needs .*{missing}.*'\.\[bench,spark\]'"):
        driver.run(
            rebuild.BENCH, quick=True, runs=1, only=[], console=Console(quiet=True), command="-", trace=None
        )
