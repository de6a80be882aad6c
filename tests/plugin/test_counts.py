"""Numbers of things for people."""

from __future__ import annotations

import pytest

from tidegate.plugin.shared.counts import counted


@pytest.mark.parametrize(("number", "said"), [(0, "0 faults"), (1, "1 fault"), (2_000, "2,000 faults")])
def test_one_has_no_plural(number: int, said: str) -> None:
    assert counted(number, "fault") == said


@pytest.mark.parametrize(
    ("number", "noun", "verb", "said"),
    [
        (1, "entry", "wait", "1 entry waits"),
        (2, "entry", "wait", "2 entries wait"),
        (1, "message", "are", "1 message is"),
        (0, "message", "are", "0 messages are"),
        (1, "slice", "have", "1 slice has"),
    ],
)
def test_the_verb_is_of_the_number(number: int, noun: str, verb: str, said: str) -> None:
    assert counted(number, noun, verb) == said
