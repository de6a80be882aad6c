"""Numbers of things for people."""

from __future__ import annotations

import pytest

from tidegate.plugin.shared.counts import counted


@pytest.mark.parametrize(("number", "said"), [(0, "0 faults"), (1, "1 fault"), (2_000, "2,000 faults")])
def test_one_has_no_plural(number: int, said: str) -> None:
    assert counted(number, "fault") == said
