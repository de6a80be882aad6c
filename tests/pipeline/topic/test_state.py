"""A topic's state by the admin API."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.pipeline.errors import OptionError, TopicError, WireError
from tidegate.pipeline.topic.names import TopicName, cursor_name
from tidegate.pipeline.topic.ranges import Position, Segment
from tidegate.pipeline.topic.state import parse_state

TOPIC = TopicName.parse("orders")
# As a 4.0.8 broker answers, less what is not read.
METADATA = (
    "LedgerMetadata{formatVersion=3, ensembleSize=3, writeQuorumSize=2, ackQuorumSize=2, state=CLOSED, "
    "length=4567378, lastEntryId=49999, digestType=CRC32C, password=OMITTED, "
    "ensembles={0=[a:3181, b:3181, c:3181], 700=[a:3181, d:3181, c:3181]}, "
    "customMetadata={component=base64:bWFuYWdlZC1sZWRnZXI=, application=base64:cHVsc2Fy}}"
)


def stats(**changes: Any) -> dict[str, Any]:
    return {
        "lastConfirmedEntry": "10:19",
        "ledgers": [
            {"ledgerId": 9, "entries": 50000, "size": 4595000, "offloaded": True, "metadata": METADATA},
            {"ledgerId": 10, "entries": 0, "size": 0, "offloaded": False, "metadata": METADATA},
            {"ledgerId": 11, "entries": 0, "size": 0, "offloaded": False},
        ],
        "cursors": {
            "sub%2F%C3%B6+x": {"markDeletePosition": "9:3", "individuallyDeletedMessages": "[(9:4..9:5]]"}
        },
        **changes,
    }


def test_ledgers() -> None:
    state = parse_state(TOPIC, stats())
    assert [one.entries for one in state.ledgers] == [50000, 20, 0], "the open ledger has what is confirmed"
    first = state.ledgers[0]
    assert (first.offloaded, first.digest, first.write_quorum) == (True, "CRC32C", 2)
    assert first.segments == (
        Segment(0, ("a:3181", "b:3181", "c:3181")),
        Segment(700, ("a:3181", "d:3181", "c:3181")),
    )
    assert state.ledgers[2].segments == ()
    assert state.last_confirmed == Position(10, 19)


def test_a_subscription_with_a_name_that_is_encoded() -> None:
    assert parse_state(TOPIC, stats()).acknowledged("sub/ö x").mark_delete == Position(9, 3)


def test_an_unknown_subscription_names_those_that_there_are() -> None:
    with pytest.raises(TopicError, match="no subscription 'nope': it has sub/ö x"):
        parse_state(TOPIC, stats()).acknowledged("nope")


@pytest.mark.parametrize(
    "changes",
    [
        {"lastConfirmedEntry": "?"},
        {"lastConfirmedEntry": None},
        {"ledgers": [{"ledgerId": "x", "entries": 1}]},
        {"ledgers": None},
        {"cursors": []},
        {"cursors": 3},
    ],
)
def test_an_answer_of_another_form(changes: dict[str, Any]) -> None:
    document = stats(**changes)
    if changes == {"cursors": []}:
        assert parse_state(TOPIC, document).cursors == {}
        return
    with pytest.raises(WireError):
        parse_state(TOPIC, document)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("shop/eu/orders", "persistent://shop/eu/orders"),
        ("persistent://shop/eu/orders/late", "persistent://shop/eu/orders/late"),
    ],
)
def test_names_of_topics(text: str, full: str) -> None:
    assert str(TopicName.parse(text)) == full


@pytest.mark.parametrize(
    "text", ["", "a/b", "persistent://a", "persistent://a//c", "non-persistent://a/b/c", "a\nb"]
)
def test_what_is_no_topic(text: str) -> None:
    with pytest.raises(OptionError):
        TopicName.parse(text)


@pytest.mark.parametrize("text", ["segment://shop/eu/orders/0000-7fff-1", "topic://shop/eu/orders"])
def test_a_scalable_topic_is_named_as_one(text: str) -> None:
    with pytest.raises(OptionError, match=r"no scalable topic or segment; its broker fills the index"):
        TopicName.parse(text)


def test_partitions() -> None:
    whole = TopicName.parse("orders")
    assert whole.partitions(0) == [whole]
    second = whole.partitions(2)[1]
    assert (second.local, second.partition, second.base) == ("orders-partition-1", 1, whole)


def test_an_admin_path_is_encoded() -> None:
    assert TopicName.parse("persistent://a/b/c/d?e#f").admin_path == "a/b/c%2Fd%3Fe%23f"


def test_names_of_cursors_are_encoded_as_java_does() -> None:
    assert cursor_name("a b/c*~é") == "a+b%2Fc*%7E%C3%A9"
