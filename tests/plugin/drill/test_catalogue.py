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


def test_a_misspelt_name_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match="is it broker-killed"):
        named("broker-kiled")
    with pytest.raises(ConfigError, match="drill list"):
        named("zzz")
