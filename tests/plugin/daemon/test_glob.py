"""Patterns of names: what fits, as a regular expression has it, and long ones that would keep that busy."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.daemon.glob import Glob

FEW = st.text("ab.\n", max_size=12)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders:late", "orders:late", True),
        ("orders:late", "orders:later", False),
        ("orders.late", "orders:late", False),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*ab*ab", "abab", True),
        ("*ab*ab", "ab", False),
        ("[a]*?", "[a]b?", True),
        ("a*\n", "ab\n", True),
    ],
)
def test_what_fits(pattern: str, name: str, fits: bool) -> None:
    assert Glob(pattern).matches(name) == fits


@given(st.lists(FEW, min_size=1, max_size=4), FEW)
def test_as_a_regular_expression_would(parts: list[str], name: str) -> None:
    expected = re.fullmatch(".*".join(re.escape(part) for part in parts), name, re.DOTALL)
    assert Glob("*".join(parts)).matches(name) == (expected is not None)


@pytest.mark.timeout(240)
def test_a_long_name_and_many_stars() -> None:
    assert not Glob("*t" * 1_000 + "*Z").matches("t" * 100_000)
    assert Glob("*t" * 1_000 + "*Z").matches("t" * 100_000 + "Z")
