"""The use of ledgers: the entries that wait, the front that few of them keep."""

from __future__ import annotations

import pytest

from tidegate.index import PositionSet
from tidegate.pipeline.commands.ledgers import Account, as_json, verdict
from tidegate.pipeline.pinned.ledger_use import Cursor, LedgerUse, Saving, saving, uses
from tidegate.pipeline.topic.ranges import Acknowledged, Ledger

LEDGERS = [Ledger(one, 100, size_bytes=10_000) for one in (3, 5, 9)]


def cursor(mark: str, ranges: str = "[]", held: list[tuple[int, int]] | None = None) -> Cursor:
    return Cursor(f"sub-{mark}", Acknowledged.parse(mark, ranges), PositionSet.of(held or []))


def found(*cursors: Cursor) -> list[LedgerUse]:
    return uses(LEDGERS, 9, cursors)


def test_a_far_message_keeps_all_ledgers_behind_it() -> None:
    far = cursor("3:41", "[(3:42..9:99]]", [(3, 42)])
    kept = found(far)
    assert [(one.waiting, one.other, one.subscriptions) for one in kept] == [
        (1, 0, ("sub-3:41",)),
        (0, 0, ()),
        (0, 0, ()),
    ]
    assert [one.needed for one in kept] == [True, False, True], "the open one is needed whatever is in it"
    assert saving(kept, 0.01) == Saving(ledgers=2, free_bytes=20_000, waiting=1, waiting_bytes=100)
    assert saving(kept, 0.001) == Saving(0, 0, 0, 0), "a share below that of one message"


def test_ledgers_that_nobody_needs_are_no_saving() -> None:
    kept = found(cursor("5:6", "[(5:7..9:99]]", [(5, 7)]))
    assert [one.needed for one in kept] == [False, True, True], "retention keeps the first"
    assert saving(kept, 0.5) == Saving(ledgers=1, free_bytes=10_000, waiting=1, waiting_bytes=100)


def test_unread_messages_are_no_waiting_ones() -> None:
    kept = found(cursor("3:41", "[]", [(3, 42), (5, 7)]))
    assert [(one.waiting, one.other) for one in kept] == [(1, 57), (1, 99), (0, 100)]
    assert saving(kept, 1.0).ledgers == 0, "the front is kept for 57 that nobody has read"


def test_subscriptions_count_once_each_for_a_message_that_both_wait_for() -> None:
    one = cursor("3:9", "[(3:10..9:99]]", [(3, 10)])
    other = cursor("3:8", "[(3:9..9:99]]", [(3, 9), (3, 10), (3, 11)])
    first = found(one, other)[0]
    assert (first.waiting, first.other) == (2, 0), "3:11 is acknowledged, though an index still holds it"


def test_a_second_subscription_without_an_index_keeps_what_it_has_not_acknowledged() -> None:
    kept = found(cursor("3:41", "[(3:42..9:99]]", [(3, 42)]), cursor("5:49"))
    assert [(one.waiting, one.other, len(one.subscriptions)) for one in kept] == [
        (1, 0, 1),
        (0, 50, 1),
        (0, 100, 1),
    ]
    assert saving(kept, 0.5) == Saving(1, 10_000, 1, 100), "it stops at the first ledger of another kind"


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (cursor("9:99"), ["no closed ledger is kept for an unacknowledged message"]),
        (
            cursor("3:41", "[(3:42..9:99]]", [(3, 42)]),
            [
                "all ledgers from 3 on are kept for sub-3:41",
                "of them, the first 2 (19.5 KiB) are kept for few waiting messages: 1 (100 B or so)",
            ],
        ),
        (
            cursor("3:41"),
            [
                "all ledgers from 3 on are kept for sub-3:41",
                "ledger 3 is not kept by a few: 0 of its 100 entries wait, "
                "up to 58 others are not acknowledged",
            ],
        ),
    ],
)
def test_the_verdict(one: Cursor, said: list[str]) -> None:
    kept = found(one)
    told = Account("persistent://public/default/orders", kept, saving(kept, 0.1))
    assert list(verdict(told, 0.1)) == said
    assert as_json(told)["ledgers"][0]["ledger_id"] == 3
