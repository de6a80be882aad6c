"""The drills that there are."""

from __future__ import annotations

import re

import pytest

from tidegate.plugin.drill.catalogue import DRILLS, named
from tidegate.plugin.errors import ConfigError


def test_names_are_words_and_differ() -> None:
    names = [drill.name for drill in DRILLS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)


def test_each_says_what_it_does_in_one_sentence() -> None:
    for drill in DRILLS:
        assert drill.does
        assert "\n" not in drill.does
        assert len(drill.does) < 120


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("broker-kiled", "is it broker-killed?"),
        ("seek", "is it seek-while-moving?"),
        ("bundle", "is it bundle-moved?"),
        ("nosuch", "drill list` lists them"),
        ("zzz", "drill list` lists them"),
    ],
)
def test_a_name_that_is_none_is_told_what_is_like_it_and_nothing_else(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(advice)):
        named(name)


def test_each_drill_but_the_burst_has_a_fault() -> None:
    """Its fault is the load, and the verdict sees whether that was done."""
    assert [drill.name for drill in DRILLS if not drill.faults] == ["burst"]
