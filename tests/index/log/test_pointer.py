"""The pointer as text."""

from __future__ import annotations

import pytest

from tidegate.index.errors import UnreadableLogError
from tidegate.index.log.pointer import NO_LEDGER, Pointer


@pytest.mark.parametrize(
    ("pointer", "text"),
    [
        (Pointer("bookkeeper", 4711), "1;4711;;bookkeeper"),
        (Pointer("bookkeeper", 4711, (4700, 4701)), "1;4711;4700,4701;bookkeeper"),
        (Pointer("s3://bucket/a", NO_LEDGER, (7,)), "1;-1;7;s3://bucket/a"),
    ],
)
def test_a_pointer_is_written_and_read(pointer: Pointer, text: str) -> None:
    assert str(pointer) == text
    assert Pointer.parse(text) == pointer


def test_no_text_is_no_pointer() -> None:
    assert Pointer.parse("") is None


@pytest.mark.parametrize(
    "text",
    [
        "2;1;;bookkeeper",
        "1;x;;bookkeeper",
        "1;1;2,;bookkeeper",
        "1;1;;",
        "1;9999999999999999999;;bookkeeper",
        "1",
    ],
)
def test_what_is_no_pointer_is_refused(text: str) -> None:
    with pytest.raises(UnreadableLogError):
        Pointer.parse(text)
