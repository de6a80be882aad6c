"""The bound of the messages that a choice by key or property reads."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.plugin.commands.filters import entries_due

TIDE: dict[str, Any] = {
    "now_ms": 1_000,
    "entries": 1_234,
    "overdue": 4,
    "buckets": [
        {"from_ms": 1_001, "until_ms": 2_000, "entries": 200},
        {"from_ms": 2_000, "until_ms": 3_000, "entries": 30},
    ],
    "later": 1_000,
    "inexact_entries": 0,
}


@pytest.mark.parametrize(
    ("from_ms", "to_ms", "entries"),
    [
        (None, None, 1_234),
        (None, 2_000, 204),
        (None, 2_001, 234),
        (500, 900, 4),
        (1_000, 1_001, 4),
        (1_001, 2_000, 200),
        (1_500, 1_600, 200),
        (2_000, 3_000, 30),
        (2_000, 3_001, 1_030),
        (3_000, 4_000, 1_000),
        (3_000, None, 1_000),
    ],
)
def test_a_range_counts_the_buckets_that_it_meets(
    from_ms: int | None, to_ms: int | None, entries: int
) -> None:
    assert entries_due(TIDE, from_ms, to_ms) == entries


def test_an_inexact_tide_counts_what_may_be_in_a_bucket_nearby() -> None:
    assert entries_due(TIDE | {"inexact_entries": 7}, 2_000, 3_000) == 37
    assert entries_due(TIDE | {"inexact_entries": 2_000}, 2_000, 3_000) == 1_234


def test_without_buckets_all_is_overdue_or_later() -> None:
    assert entries_due(TIDE | {"buckets": []}, None, 2_000) == 1_004
