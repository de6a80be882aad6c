"""Log lines about frequent events."""

from __future__ import annotations

from tidegate.index.clock import ManualClock
from tidegate.plugin.shared.seldom import KINDS_MAX, Seldom, kind_of


def test_once_a_minute_and_how_many_were_left_out() -> None:
    clock = ManualClock(0)
    seldom = Seldom(clock.monotonic_ns, every_s=60)
    assert [seldom.more(kind) for kind in "abaa"] == [{}, {}, None, None]
    clock.advance(59_999)
    assert seldom.more("a") is None
    clock.advance(1)
    assert seldom.more("a") == {"untold": 3}
    assert seldom.more("a") is None
    assert seldom.more("b") == {}


def test_what_is_kept_is_bounded() -> None:
    seldom = Seldom(lambda: 0)
    for kind in range(10 * KINDS_MAX):
        assert seldom.more(kind) == {}
    assert seldom.more(10 * KINDS_MAX - 1) is None
    assert seldom.more(0) == {}, "the oldest are forgotten"


def test_exceptions_of_a_kind() -> None:
    def error_of(text: str) -> ValueError:
        try:
            raise ValueError(text)
        except ValueError as error:
            return error

    assert kind_of(error_of("one")) == kind_of(error_of("two"))
    assert kind_of(error_of("one")) != kind_of(ValueError("never raised"))
    assert kind_of(None) is None
