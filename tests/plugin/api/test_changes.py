"""Courses of a change, against an index and a broker in memory."""

from __future__ import annotations

import base64
from typing import Any
from unittest.mock import patch

import pytest

from tidegate.index import PositionSet
from tidegate.plugin.api import changes
from tidegate.plugin.api.changes import OUTCOMES, Total, change_of, change_of_due, positions_of, run_blocking
from tidegate.plugin.client import calls
from tidegate.plugin.errors import DaemonAwayError, NotNowError, UserError

NOW_MS = 1_790_000_000_000
LATER_MS = NOW_MS + 86_400_000
NAMED = {"topic": "orders", "subscription": "billing"}
Position = tuple[int, int]


class World:
    """Messages by partition, with their times; each query takes a while."""

    def __init__(self, messages: int = 0, *, partition: int | None = None) -> None:
        self.times = {(partition, n): NOW_MS + 1 + n for n in range(messages)}
        self.unserved: set[int | None] = set()
        self.no_room: set[int | None] = set()
        self.now_ms = NOW_MS
        self.changes = 0
        self.fails: dict[int, UserError] = {}

    def ask(self, query: dict[str, Any]) -> dict[str, Any]:
        if query["what"] == "waiting":
            return self._page(query)
        self.changes += 1
        self.now_ms += 7
        if (error := self.fails.get(self.changes)) is not None:
            raise error
        partition = query["partition"]
        some = [one[1] for one in PositionSet.deserialize(base64.b64decode(query["positions"]))]
        counts = dict.fromkeys(OUTCOMES, 0)
        if partition in self.unserved or partition in self.no_room:
            no_room = {"no_room": True} if partition in self.no_room else {}
            return counts | {"undecided": len(some), "ids": {}, "why": "no broker"} | no_room
        for one in some:
            if query["what"] == "cancel":
                del self.times[partition, one]
            else:
                self.times[partition, one] = min(query["at_ms"], self.now_ms)
                if query["what"] == "reschedule":
                    self.times[partition, one] = query["at_ms"]
        return counts | {"done": len(some), "ids": {}}

    def _page(self, query: dict[str, Any]) -> dict[str, Any]:
        after = tuple(map(int, (query["after"] or "-1:-1:-1").split(":")))
        key = max(after, (query["from_ms"] or 0, -1, -1))
        keys = sorted(
            (at_ms, 5, n, partition or 0, partition) for (partition, n), at_ms in self.times.items()
        )
        found = [one for one in keys if one[:3] > key and one[0] < (query["to_ms"] or 1 << 62)]
        found = [one for one in found if str(one[4]) not in query.get("without", "").split(",")]
        page = found[: query["limit"]]
        entries = [
            {"message_id": f"5:{n}" if of is None else f"5:{n}:{of}", "deliver_at_ms": at_ms}
            for at_ms, _, n, _, of in page
        ]
        more = len(found) > len(page)
        return {"entries": entries, "next": ":".join(map(str, page[-1][:3])) if more else None}

    def change(self, what: str, *, requests: int = 1, to_ms: int | None = None, **more: Any) -> list[Any]:
        """The answers of requests that go on until there is no `next`; `requests` at most."""
        options = {name: more.pop(name) for name in ("entries_max", "over") if name in more}
        after, answers = None, list[Any]()
        with patch.object(changes, "PAGE_ENTRIES", 10):
            for _ in range(requests):
                query = NAMED | {"what": what, "dry_run": False} | more
                course = change_of_due(
                    query, None, to_ms, Total(False), now_ms=lambda: self.now_ms, after=after, **options
                )
                answers.append(run_blocking(course, self.ask))
                after = answers[-1]["next"]
                if after is None:
                    break
        return answers


@pytest.mark.parametrize("entries_max", [None, 20])
def test_a_release_meets_no_message_that_it_has_moved(entries_max: int | None) -> None:
    """Nothing leaves a paused subscription: what is due stays in the index."""
    world = World(100)
    world.times |= {(None, 1_000 + n): NOW_MS - n for n in range(100)}
    answers = world.change("release", requests=20, entries_max=entries_max)
    assert answers[-1]["next"] is None
    done = sum(one["done"] for one in answers)
    # Some come due on their own while the others are released.
    assert 100 - (world.now_ms - NOW_MS) <= done <= 100
    assert max(world.times.values()) <= world.now_ms
    assert all(world.times[None, 1_000 + n] == NOW_MS - n for n in range(100))
    assert world.change("release")[0]["done"] == 0


def test_a_release_of_what_is_due_has_nothing_to_do() -> None:
    world = World(10)
    world.now_ms += 1_000
    assert world.change("release", to_ms=NOW_MS + 500)[0]["next"] is None
    assert not world.changes


@pytest.mark.parametrize("entries_max", [None, 20])
@pytest.mark.parametrize("at_ms", [LATER_MS, NOW_MS + 55])
def test_a_change_to_a_time_counts_each_message_once(entries_max: int | None, at_ms: int) -> None:
    world = World(100)
    had_it = sum(1 for one in world.times.values() if one == at_ms)
    answers = world.change("reschedule", requests=20, at_ms=at_ms, entries_max=entries_max)
    assert answers[-1]["next"] is None
    assert sum(one["done"] for one in answers) == 100 - had_it
    assert set(world.times.values()) == {at_ms}


def test_where_no_broker_decides_a_course_ends_after_a_page() -> None:
    world = World(100)
    world.unserved = {None}
    (answer,) = world.change("cancel")
    assert (answer["undecided"], answer["stopped"], answer["why"]) == (10, True, "no broker")
    assert world.changes == 1
    world.unserved = set()
    with patch.object(changes, "PAGE_ENTRIES", 10):
        course = change_of_due(
            NAMED | {"what": "cancel"}, None, None, Total(False), now_ms=lambda: 0, after=answer["next"]
        )
        assert run_blocking(course, world.ask)["done"] == 100


def test_a_partition_without_a_broker_is_asked_once_and_the_others_go_on() -> None:
    world = World(50, partition=0)
    world.times |= World(50, partition=1).times
    world.unserved = {0}
    (answer,) = world.change("cancel")
    assert (answer["done"], answer["undecided"], answer["next"]) == (50, 50, None)
    assert "stopped" not in answer
    assert len(answer["ids"]["undecided"]) == 50 - 5  # the daemon names those of the one query
    assert world.changes == 1 + 10


@pytest.mark.parametrize("what", ["cancel", "release"])
def test_a_course_goes_on_though_its_first_pages_are_of_a_partition_without_a_broker(what: str) -> None:
    world = World(50, partition=0)
    world.times |= {(1, n): NOW_MS + 1_000 + n for n in range(50)}
    world.unserved = {0}
    (answer,) = world.change(what)
    assert (answer["done"], answer["undecided"], answer["next"]) == (50, 50, None)
    assert "stopped" not in answer
    world.unserved = {0, 1}
    world.times = {(of, n): NOW_MS + 1_000 * of + n + 1_000 for of in (0, 1) for n in range(50)}
    (answer,) = world.change(what)
    assert (answer["done"], answer["undecided"], answer["stopped"]) == (0, 60, True)


def test_an_older_daemon_that_knows_no_filter_changes_nothing() -> None:
    world = World(10)
    with pytest.raises(UserError, match="the daemon knows no key: upgrade it"):
        world.change("cancel", key="k")
    assert not world.changes


def test_what_has_no_room_does_not_end_a_course() -> None:
    world = World(30)
    world.no_room = {None}
    (answer,) = world.change("cancel")
    assert (answer["undecided"], answer["next"], world.changes) == (30, None, 3)


def test_a_course_that_is_over_answers_with_a_cursor() -> None:
    world = World(100)
    answers = world.change("cancel", requests=20, over=lambda: world.changes % 3 == 2)
    assert [one["done"] for one in answers] == [20, 30, 30, 20]
    assert not world.times


def test_ids_that_a_course_has_no_time_for_are_undecided() -> None:
    world = World(100)
    ids = [f"5:{n}" for n in range(100)]
    with patch.object(changes, "POSITIONS_MAX", 10):
        course = change_of(
            NAMED | {"what": "cancel"},
            positions_of(enumerate(ids), "ids"),
            Total(False),
            over=lambda: world.changes >= 2,
        )
        answer = run_blocking(course, world.ask)
    assert (answer["done"], answer["undecided"], answer["why"]) == (20, 80, changes.WHY_OVER)
    assert len(answer["ids"]["undecided"]) == 80
    assert world.changes == 2


@pytest.mark.parametrize("by_ids", [True, False])
def test_after_a_change_a_failure_is_told_with_the_counts(by_ids: bool) -> None:
    world = World(100)
    world.fails = {3: NotNowError("the store is failing")}
    if by_ids:
        ids = positions_of(enumerate(f"5:{n}" for n in range(100)), "ids")
        with patch.object(changes, "POSITIONS_MAX", 10):
            answer = run_blocking(change_of(NAMED | {"what": "cancel"}, ids, Total(False)), world.ask)
        assert (answer["done"], answer["undecided"]) == (20, 80)
    else:
        (answer,) = world.change("cancel")
        assert (answer["done"], answer["undecided"], answer["stopped"]) == (20, 10, True)
        assert answer["next"] is not None
    assert answer["why"] == "the store is failing"
    assert len(world.times) == 80


def test_a_span_is_not_added_by_two_ids_of_a_message() -> None:
    world = World(3)
    ids = positions_of(enumerate(("5:1", "5:1:0")), "ids")
    by_span = NAMED | {"what": "reschedule", "by_ms": 5}
    for course in (change_of(by_span, ids, Total(False)), calls.change_of(by_span, ids, Total(False))):
        with pytest.raises(UserError, match="give all ids with their partition, or none"):
            run_blocking(course, world.ask)
    assert not world.changes


def test_after_what_is_perhaps_done_a_failure_is_told_with_the_counts() -> None:
    """Messages without room are cancelled, and count as undecided."""
    world = World(30)
    world.no_room = {None}
    world.fails = {2: NotNowError("the store is failing")}
    ids = positions_of(enumerate(f"5:{n}" for n in range(30)), "ids")
    with patch.object(changes, "POSITIONS_MAX", 10):
        answer = run_blocking(change_of(NAMED | {"what": "cancel"}, ids, Total(False)), world.ask)
    assert (answer["done"], answer["undecided"], answer["why"]) == (0, 30, "the store is failing")


@pytest.mark.parametrize("error", [NotNowError("the store is failing"), UserError("wrong")])
def test_a_failure_before_a_change_is_an_error(error: UserError) -> None:
    world = World(100)
    world.fails = {1: error}
    with pytest.raises(type(error), match=str(error)):
        world.change("cancel")


def test_a_daemon_that_goes_away_is_an_error() -> None:
    world = World(100)
    world.fails = {3: DaemonAwayError("gone")}
    with pytest.raises(DaemonAwayError, match="gone"):
        world.change("cancel")


def test_a_file_from_windows_has_the_same_ids() -> None:
    lines = "\ufeff5:1\r\n\r\n 5:2 \r\n5:1\r\n".splitlines(keepends=True)
    assert positions_of(enumerate(lines, start=1), "ids.txt") == positions_of(
        enumerate(["5:1", "5:2"]), "ids"
    )


@pytest.mark.parametrize(
    ("what", "count", "checked"),
    [
        ("release", 1, True),
        ("reschedule", changes.WHOLE_MAX, True),
        ("release", changes.WHOLE_MAX + 1, False),
        ("cancel", 1, False),
    ],
)
def test_few_ids_are_checked_for_lone_chunks(what: str, count: int, checked: bool) -> None:
    world, asked = World(count), list[bool]()

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append(query.get("by_ids", False))
        return world.ask(query)

    ids = positions_of(enumerate(f"5:{n}" for n in range(count)), "ids")
    query = NAMED | {"what": what, "at_ms": NOW_MS}
    assert run_blocking(change_of(query, ids, Total(False)), ask)["done"] == count
    assert asked == [checked]


def test_a_page_of_a_range_is_not_checked_for_lone_chunks() -> None:
    world, asked = World(10), list[bool]()

    def ask(query: dict[str, Any]) -> dict[str, Any]:
        asked.append("by_ids" in query)
        return world.ask(query)

    course = changes.change_of_due(
        NAMED | {"what": "reschedule", "at_ms": NOW_MS}, None, None, Total(False), now_ms=lambda: NOW_MS
    )
    assert run_blocking(course, ask)["done"] == 10
    assert True not in asked
