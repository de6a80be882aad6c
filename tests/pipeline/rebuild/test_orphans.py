"""Looking for index logs that nobody needs, where there is nothing to look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.rebuild.orphans import ObjectLedgers


def test_a_folder_that_is_not_there_is_not_taken_for_one_without_logs(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no folder"):
        ObjectLedgers(f"file://{tmp_path}/a%20b")
    (tmp_path / "a b").mkdir()
    assert list(ObjectLedgers(f"file://{tmp_path}/a%20b").list()) == []
