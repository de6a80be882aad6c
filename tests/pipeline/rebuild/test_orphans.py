"""The search for ledgers that nobody needs, by their owners and pointers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from tidegate.pipeline.errors import NoTopicError, OptionError, UnreachableError
from tidegate.pipeline.rebuild.orphans import (
    OVERRIDES,
    BookieLedgers,
    LogLedger,
    Named,
    ObjectLedgers,
    find_orphans,
)
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER

TOPIC = "persistent://public/default/orders"


class PlayedAdmin:
    """A broker with one topic and subscription; it tells the pointer to moved messages' times."""

    def __init__(self, pointer: str | None) -> None:
        self._pointer = pointer

    def subscriptions(self, topic: TopicName) -> set[str]:
        """Raises NoTopicError."""
        if str(topic) != TOPIC:
            raise NoTopicError("there is no such topic")
        return {"sub"}

    def subscription_properties(self, topic: TopicName, subscription: str) -> dict[str, Any]:
        """The cursor's, ours among them."""
        assert (str(topic), subscription) == (TOPIC, "sub")
        name = "#pulsar.internal.tidegate.overrides"
        return {} if self._pointer is None else {name: self._pointer}


class PlayedNamed(Named):
    """No daemon serves anything."""

    def __init__(self, pointer: str | None) -> None:
        self._admin = cast("Admin", PlayedAdmin(pointer))
        self._pointers = {}
        self._there = {}


class PlayedBookie(BookieLedgers):
    """Ledgers 5 to 9, of the same subscription but one."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:8000")

    def _ask(self, method: str, what: str, parameters: dict[str, str]) -> Any:
        assert (method, what, parameters) == ("GET", "list", {"print_metadata": "true"})
        cursors = {5: "gone", 6: "sub", 7: "sub", 8: "sub", 9: "sub"}
        return {str(ledger_id): _metadata(cursor) for ledger_id, cursor in cursors.items()}


def _metadata(cursor: str) -> str:
    custom = {
        "application": "tidegate",
        "component": OVERRIDES,
        "pulsar/managed-ledger": "public/default/persistent/orders",
        "pulsar/cursor": cursor,
    }
    parts = (f"{chr(len(name))}{name}\x12{chr(len(value))}{value}" for name, value in custom.items())
    return "".join(f"\n{one}" for one in parts)


@pytest.mark.parametrize(
    ("pointer", "left"),
    [
        ("1;8,6", [5, 7]),
        ("1;8", [5, 6, 7]),
        (None, [5]),
        ("", [5]),
        ("2;8", [5]),
    ],
)
def test_ledgers_of_moved_messages_times_that_are_left_are_told(pointer: str | None, left: list[int]) -> None:
    """The pointer may be that of the topic's loading: a ledger made since then may be in use."""
    found = find_orphans(
        lambda: PlayedNamed(pointer), [PlayedBookie()], TopicName.parse("*"), "*", lambda _: None
    )
    assert [one.ledger_id for _, one in found] == left
    assert found[0][1] == LogLedger(BOOKKEEPER, 5, TOPIC, "gone", OVERRIDES)


@pytest.mark.parametrize(("failures", "requests"), [(0, 1), (3, 4), (5, 6)])
def test_a_ledger_deleted_amid_the_list_fails_no_search(
    failures: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(500, "no such ledger")] * failures + [(200, '{"5": ""}')]
    pauses: list[float] = []
    asked = _played_answers(answers, monkeypatch)
    assert list(BookieLedgers("http://127.0.0.1:8000", pauses.append).list()) == []
    assert len(asked) == requests
    assert len(pauses) == failures


@pytest.mark.parametrize(("status", "requests"), [(500, 6), (503, 1)])
def test_a_bookie_that_fails_for_long_is_told(
    status: int, requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _played_answers([(status, "")] * 10, monkeypatch)
    with pytest.raises(UnreachableError, match=str(status)):
        list(BookieLedgers("http://127.0.0.1:8000", lambda _: None).list())
    assert len(asked) == requests


def _played_answers(answers: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer the requests in turn; returns the URLs asked for."""
    asked: list[str] = []

    def request(method: str, url: str, **_: Any) -> httpx.Response:
        status, text = answers[len(asked)]
        asked.append(url)
        return httpx.Response(status, text=text, request=httpx.Request(method, url))

    monkeypatch.setattr(httpx, "request", request)
    return asked


def test_a_folder_that_is_not_there_is_not_taken_for_one_without_logs(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no folder"):
        ObjectLedgers(f"file://{tmp_path}/a%20b")
    (tmp_path / "a b").mkdir()
    assert list(ObjectLedgers(f"file://{tmp_path}/a%20b").list()) == []
