"""Names that a client chose, as shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.plugin.shared.shown import lines, one_line, shown, without_passwords


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("persistent://public/default/orders", "persistent://public/default/orders"),
        ("orders[eu]", "orders[eu]"),
        ("größe 注文", "größe 注文"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("\\x1b", "\\\\x1b"),
        ("no\xa0break", "no\\xa0break"),
    ],
)
def test_a_name(name: str, expected: str) -> None:
    assert shown(name) == expected


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
def test_a_name_is_printable_and_like_no_other(one: str, other: str) -> None:
    assert shown(one).isprintable()
    assert (shown(one) == shown(other)) == (one == other)


def test_a_message_is_one_line_and_keeps_its_escapes() -> None:
    assert one_line("no subscription 'a\\x1b': two\nlines") == "no subscription 'a\\x1b': two\\nlines"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("cannot read ftp://me:s3cret@host/x: gone", "cannot read ftp://me:…@host/x: gone"),
        ("s3a://KEY:s3@cret@bucket and x://:s3cret@host:1", "s3a://KEY:…@bucket and x://:…@host:1"),
        ("abfss://container@account.net/x", "abfss://container@account.net/x"),
        ("http://127.0.0.1:8080/a@b: refused", "http://127.0.0.1:8080/a@b: refused"),
    ],
)
def test_a_message_has_no_password_of_a_url(message: str, expected: str) -> None:
    assert without_passwords(message) == expected


def test_a_text_keeps_its_lines() -> None:
    assert lines("one\x1b\ntwo") == "one\\x1b\ntwo"
