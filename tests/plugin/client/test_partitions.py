"""A partitioned topic over a broker: one answer about all partitions. No network."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tidegate.plugin.api.changes import OUTCOMES, Total, positions_of, run_blocking
from tidegate.plugin.client import calls, partitions
from tidegate.plugin.client.calls import Reply, answer_of, call_of
from tidegate.plugin.client.partitions import PartitionedError
from tidegate.plugin.errors import DaemonAwayError, NotNowError, UnknownNameError, UserError

NAMED = {"topic": "orders", "subscription": "billing"}
NOW_MS = 1_790_000_000_000


class World:
    """Partitions at their brokers, with messages by (deliver_at_ms, ledger, entry); None: no index there."""

    def __init__(self, *times_ms: list[int] | None) -> None:
        self.parts = [
            None if some is None else sorted((at_ms, 10 + of, n) for n, at_ms in enumerate(some))
            for of, some in enumerate(times_ms)
        ]
        self.asked: list[dict[str, Any]] = []
        self.unserved: set[int] = set()
        self.states: dict[int, str] = {}
        self.fails: dict[int, UserError] = {}
        self.backlogs: dict[int, dict[str, int]] = {}

    def ask(self, query: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(query)
        name, is_partition, number = query["topic"].partition("-partition-")
        assert name == "orders"
        if not is_partition:
            raise PartitionedError("a partitioned topic", len(self.parts))
        of = int(number)
        if query["what"] == partitions.BACKLOG:
            if of not in self.backlogs:
                raise UserError("no statistics")
            return {"subscriptions": {name: {"msgBacklog": n} for name, n in self.backlogs[of].items()}}
        if of in self.fails:
            raise self.fails[of]
        part = self.parts[of]
        if part is None:
            raise UnknownNameError(f"no subscription of {query['topic']}")
        answer: dict[str, Any] = getattr(self, f"_{query['what']}")(query, of, part)
        return answer

    def _waiting(self, query: dict[str, Any], of: int, part: list[Any]) -> dict[str, Any]:
        after = tuple(map(int, (query.get("after") or "-1:-1:-1").split(":")))
        found = [one for one in part if one > after]
        page = found[: query["limit"]]
        entries = [{"message_id": f"{one[1]}:{one[2]}:{of}", "deliver_at_ms": one[0]} for one in page]
        return {"entries": entries, "next": ":".join(map(str, page[-1])) if len(found) > len(page) else None}

    def _tide(self, query: dict[str, Any], of: int, part: list[Any]) -> dict[str, Any]:
        now_ms = NOW_MS + 300 * of
        step_ms = query.get("step_ms") or 1_000 * (of + 1)
        first = (now_ms // step_ms + 1) * step_ms
        last_ms = now_ms + query["span_ms"] if query.get("span_ms") else max(one[0] for one in part) + 1
        edges = [now_ms + 1, *range(first, max(first, last_ms - 1) + step_ms, step_ms)]
        buckets = [
            {"from_ms": a, "until_ms": b, "entries": sum(a <= one[0] < b for one in part)}
            for a, b in itertools.pairwise(edges)
        ]
        return {
            "now_ms": now_ms,
            "subscriptions": 1,
            "subscriptions_away": 0,
            "entries": len(part),
            "overdue": sum(one[0] < edges[0] for one in part),
            "buckets": buckets,
            "later": sum(one[0] >= edges[-1] for one in part),
            "inexact_entries": 0,
        }

    def _show(self, query: dict[str, Any], of: int, part: list[Any]) -> dict[str, Any]:
        ledger_id, entry_id = map(int, query["id"].split(":")[:2])
        known = any(one[1:] == (ledger_id, entry_id) for one in part)
        state = self.states.get(of, "waiting" if known else "unknown")
        return {"state": state, "topic": query["topic"], "of": of}

    def _pace(self, query: dict[str, Any], of: int, part: list[Any]) -> dict[str, Any]:
        told = [{"topic": query["topic"]}]
        return {"done": of not in self.unserved, "held_back": len(part), "subscriptions": told}

    def _cancel(self, query: dict[str, Any], of: int, part: list[Any]) -> dict[str, Any]:
        wanted = query.get("ids")
        if wanted is None:
            wanted = [f"{one[1]}:{one[2]}:{of}" for one in part[:10]]
        ids: dict[str, list[str]] = {}
        counts = dict.fromkeys(OUTCOMES, 0)
        for text in wanted:
            ledger_id, entry_id = map(int, text.split(":")[:2])
            found = [one for one in part if one[1:] == (ledger_id, entry_id)]
            outcome = "undecided" if of in self.unserved else "done" if found else "unknown"
            counts[outcome] += 1
            if outcome == "done":
                part.remove(found[0])
            else:
                ids.setdefault(outcome, []).append(f"{ledger_id}:{entry_id}:{of}")
        following = {} if "ids" in query else {"next": "1:1:1" if part else None}
        stopped = {"stopped": True, "why": "no broker"} if of in self.unserved else {}
        return counts | {"ids": ids} | following | stopped

    def looked(self, what: str, **more: Any) -> dict[str, Any]:
        return run_blocking(partitions.looked(NAMED | {"what": what} | more), self.ask)

    def cancel(self, ids: list[str] | None = None) -> dict[str, Any]:
        query, total = NAMED | {"what": "cancel"}, Total(False)
        if ids is None:
            return run_blocking(calls.change_of_due(query, "1..2", total), self.ask)
        return run_blocking(calls.change_of(query, positions_of(enumerate(ids), "ids"), total), self.ask)


def problem(**more: Any) -> Reply:
    return Reply(409, json.dumps({"status": 409, "detail": "ask each"} | more).encode())


def test_a_broker_tells_how_many_partitions_there_are() -> None:
    call = call_of("http://h", NAMED | {"what": "tide"})
    with pytest.raises(PartitionedError, match="ask each") as caught:
        answer_of(problem(partitions=7), call)
    assert caught.value.partitions == 7
    for wrong in (0, -1, "7", None, 1 << 40):
        with pytest.raises(UserError, match="409") as other:
            answer_of(problem(partitions=wrong), call)
        assert not isinstance(other.value, PartitionedError)


@pytest.mark.parametrize("limit", [1, 7, 300, 1_000])
def test_pages_are_in_due_order_and_have_each_message_once(limit: int) -> None:
    world = World(list(range(0, 900, 3)), list(range(0, 900, 2)), [5] * 40, [])
    found: list[tuple[int, str]] = []
    after, pages = None, 0
    while True:
        page = world.looked("waiting", limit=limit, after=after)
        assert 0 < len(page["entries"]) <= limit
        found += [(one["deliver_at_ms"], one["message_id"]) for one in page["entries"]]
        after, pages = page["next"], pages + 1
        if after is None:
            break
    wanted = sorted((*one, of) for of, part in enumerate(world.parts) for one in part or [])
    assert found == [(at_ms, f"{ledger}:{n}:{of}") for at_ms, ledger, n, of in wanted]
    assert pages <= -(-len(wanted) // min(limit, 256)) + 1


def test_a_page_of_empty_partitions_is_empty() -> None:
    assert World([], []).looked("waiting") == {"entries": [], "next": None}


def test_no_page_leaves_out_a_partition_without_an_index() -> None:
    with pytest.raises(NotNowError, match=r"partition 1 has no index .* ask again .*orders-partition-1"):
        World([NOW_MS], None, [NOW_MS]).looked("waiting")


@pytest.mark.parametrize("asked", [{}, {"step_ms": 1_000}, {"span_ms": 10_000, "step_ms": 1_000}])
def test_tides_are_added_bucket_by_bucket(asked: dict[str, int]) -> None:
    world = World([NOW_MS - 5, NOW_MS + 100, NOW_MS + 8_500], [NOW_MS + 2_500], None, [NOW_MS + 500] * 3)
    tide = world.looked("tide", **asked)
    assert (tide["subscriptions"], tide["entries"], tide["overdue"], tide["later"]) == (3, 7, 1 + 3, 0)
    assert tide["subscriptions_away"] == 1
    assert sum(one["entries"] for one in tide["buckets"]) == 3
    untils = [one["until_ms"] for one in tide["buckets"]]
    steps = {b - a for a, b in itertools.pairwise(untils)}
    assert len(steps) == 1
    assert [one["from_ms"] for one in tide["buckets"]][1:] == untils[:-1]
    at = next(one for one in tide["buckets"] if one["from_ms"] <= NOW_MS + 8_500 < one["until_ms"])
    assert at["entries"] == 1


def test_a_bucket_that_not_all_have_is_later() -> None:
    def of(*until_ms: int) -> dict[str, Any]:
        buckets = [{"from_ms": one - 10, "until_ms": one, "entries": 1} for one in until_ms]
        counts = dict.fromkeys(("subscriptions", "subscriptions_away", "overdue", "inexact_entries"), 1)
        return counts | {"entries": len(buckets) + 3, "buckets": buckets, "later": 2}

    added = partitions.tides_added([of(10, 20), of(10, 20, 30)])
    assert [one["entries"] for one in added["buckets"]] == [2, 2]
    assert (added["later"], added["entries"]) == (5, 11)
    assert added["drain_per_second"] is None, "an older daemon tells none"
    some = [of(10) | {"drain_per_second": rate} for rate in (1.5, None, 2.25)]
    assert partitions.tides_added(some)["drain_per_second"] == 3.75


def test_a_message_is_found_in_its_partition() -> None:
    world = World([NOW_MS], [NOW_MS], [NOW_MS])
    assert world.looked("show", id="12:0:2")["of"] == 2
    assert len(world.asked) == 2
    assert world.looked("show", id="11:0")["of"] == 1
    assert world.looked("show", id="99:0")["state"] == "unknown"
    with pytest.raises(UserError, match="partition 3 is not of this topic, which has 3"):
        world.looked("show", id="12:0:3")


@pytest.mark.parametrize(
    "states", list(itertools.pairwise(("waiting", "handed_out", "acknowledged", "unknown"))), ids="-".join
)
def test_the_partition_that_has_a_message_tells_its_state(states: tuple[str, str]) -> None:
    world = World([], [])
    for said in (states, states[::-1]):
        world.states = dict(enumerate(said))
        assert world.looked("show", id="10:0")["state"] == states[0]


def test_a_pace_is_in_force_where_all_partitions_have_it() -> None:
    world = World([NOW_MS], [NOW_MS] * 4)
    pace = world.looked("pace", kind="paused")
    assert (pace["done"], pace["held_back"], len(pace["subscriptions"])) == (True, 5, 2)
    world.unserved = {1}
    assert world.looked("pace", kind="paused")["done"] is False


def test_a_pace_is_not_in_force_where_a_partition_has_no_index() -> None:
    pace = World([NOW_MS], None).looked("pace", kind="paused")
    assert (pace["done"], pace["held_back"]) == (False, 1)
    told = pace["subscriptions"][1]
    assert told["topic"] == "persistent://public/default/orders-partition-1"
    assert told["subscription"] == "billing"
    assert "partition 1 has no index" in told["why"]


@pytest.mark.parametrize(
    ("backlogs", "is_empty"),
    [
        ({"billing": 0, "other": 7}, True),
        ({"other": 7}, True),
        ({"billing": 1}, False),
        (None, False),
    ],
)
def test_a_partition_without_an_index_is_empty_where_pulsar_counts_no_backlog(
    backlogs: dict[str, int] | None, is_empty: bool
) -> None:
    world = World([NOW_MS] * 3, None)
    world.backlogs = {} if backlogs is None else {1: backlogs}
    assert world.looked("tide")["subscriptions_away"] == (0 if is_empty else 1)
    if is_empty:
        assert len(world.looked("waiting")["entries"]) == 3
        answer = world.cancel()
        assert (answer["done"], answer.get("stopped")) == (3, None)
    else:
        with pytest.raises(NotNowError, match="partition 1 has no index"):
            world.looked("waiting")
        assert world.cancel()["stopped"]
    # A message that comes there later would leave at once.
    assert world.looked("pace", kind="paused")["done"] is False


def test_the_statistics_are_asked_of_pulsar() -> None:
    query = {"what": partitions.BACKLOG, "topic": "acme/shop/a b-partition-1"}
    call = call_of("http://127.0.0.1:8080", query)
    assert (call.method, call.body) == ("GET", None)
    assert call.url == "http://127.0.0.1:8080/admin/v2/persistent/acme/shop/a%20b-partition-1/stats"


@pytest.mark.parametrize("what", ["waiting", "tide", "pace"])
def test_a_name_that_no_partition_knows_is_unknown(what: str) -> None:
    with pytest.raises(UnknownNameError):
        World(None, None).looked(what)


def test_each_id_is_changed_in_its_partition_and_others_are_looked_for() -> None:
    world = World([NOW_MS] * 5, [], [NOW_MS] * 5)
    answer = world.cancel(["10:0:0", "12:1:2", "12:2", "10:1", "99:9", "99:8:0", "11:0:1"])
    assert (answer["done"], answer["unknown"], answer["undecided"]) == (4, 3, 0)
    assert sorted(answer["ids"]["unknown"]) == ["11:0:1", "99:8:0", "99:9"]
    assert [len(one or []) for one in world.parts] == [3, 0, 3]


def test_ids_that_a_partition_without_an_index_may_have_are_undecided() -> None:
    world = World([NOW_MS] * 5, None, [NOW_MS] * 5)
    answer = world.cancel(["10:0:0", "12:1:2", "12:2", "10:1", "99:9", "99:8:0", "11:0:1"])
    assert (answer["done"], answer["unknown"], answer["undecided"]) == (4, 1, 2)
    assert answer["ids"] == {"unknown": ["99:8:0"], "undecided": ["99:9", "11:0:1"]}
    assert "partition 1 has no index" in answer["why"]
    assert "partition 1 has no index" in world.cancel(["99:9"])["why"]
    assert "why" not in world.cancel(["10:2"])


@pytest.mark.parametrize("ids", [["11:0:1"], ["11:0:1", "11:1:1"]])
def test_ids_of_partitions_without_an_index_alone_are_an_error(ids: list[str]) -> None:
    with pytest.raises(UnknownNameError):
        World([NOW_MS], None).cancel(ids)
    for some in (ids, ["1:1"]):
        with pytest.raises(UnknownNameError):
            World(None, None).cancel(some)


def test_an_id_without_a_partition_is_undecided_where_one_that_may_have_it_is_unserved() -> None:
    world = World([NOW_MS] * 5, [NOW_MS] * 5)
    world.unserved = {0}
    answer = world.cancel(["10:0", "11:0"])
    assert (answer["done"], answer["undecided"], answer["unknown"]) == (1, 1, 0)
    assert answer["ids"]["undecided"] == ["10:0:0"]


def test_an_id_of_no_partition_changes_nothing() -> None:
    world = World([NOW_MS] * 5, [NOW_MS] * 5)
    with pytest.raises(UserError, match="partition 2 is not of this topic"):
        world.cancel(["10:0:0", "10:0:2"])
    assert len(world.parts[0] or []) == 5


def test_a_range_is_changed_in_all_partitions_though_one_is_unserved() -> None:
    world = World([NOW_MS] * 25, [NOW_MS] * 5, [], [NOW_MS] * 3)
    world.unserved = {1}
    answer = world.cancel()
    assert (answer["done"], answer["undecided"], answer["stopped"]) == (28, 5, True)
    assert answer["why"] == "no broker"


def test_a_range_is_not_all_changed_where_a_partition_has_no_index() -> None:
    answer = World([NOW_MS] * 25, None, [NOW_MS] * 3).cancel()
    assert (answer["done"], answer["undecided"], answer["stopped"]) == (28, 0, True)
    assert "partition 1 has no index" in answer["why"]
    with pytest.raises(UnknownNameError):
        World(None, None).cancel()


BUSY = NotNowError("too many requests are under way")


def test_a_pace_is_in_force_in_other_partitions_than_one_whose_broker_is_busy() -> None:
    world = World([NOW_MS], [NOW_MS], [NOW_MS])
    world.fails = {1: BUSY}
    pace = world.looked("pace", kind="paused")
    assert (pace["done"], pace["held_back"]) == (False, 2)
    assert [one.get("why") for one in pace["subscriptions"]] == [None, None, f"partition 1: {BUSY}"]
    world.fails = dict.fromkeys(range(3), BUSY)
    with pytest.raises(NotNowError, match="too many"):
        world.looked("pace", kind="paused")


@pytest.mark.parametrize("ids", [["10:0:0", "11:0:1", "12:0:2"], ["10:0", "11:0", "12:0"]])
def test_ids_of_a_partition_whose_broker_is_busy_are_undecided(ids: list[str]) -> None:
    world = World([NOW_MS], [NOW_MS], [NOW_MS])
    world.fails = {1: BUSY}
    answer = world.cancel(ids)
    assert (answer["done"], answer["undecided"], answer["ids"]["undecided"]) == (2, 1, [ids[1]])
    assert answer["why"] == f"partition 1: {BUSY}"
    world.fails = dict.fromkeys(range(3), BUSY)
    with pytest.raises(NotNowError, match="too many"):
        world.cancel(ids)


def test_a_range_is_changed_in_other_partitions_than_one_whose_broker_is_busy() -> None:
    world = World([NOW_MS] * 25, [NOW_MS] * 5, [NOW_MS] * 3)
    world.fails = {1: BUSY}
    answer = world.cancel()
    assert (answer["done"], answer["stopped"], answer["why"]) == (28, True, f"partition 1: {BUSY}")
    world.fails = dict.fromkeys(range(3), BUSY)
    with pytest.raises(NotNowError, match="too many"):
        world.cancel()


@pytest.mark.parametrize("ids", [["10:0:0", "11:0:1", "12:0:2"], ["10:0", "11:0", "12:0"]])
def test_after_a_change_a_failure_of_a_partition_is_told_with_the_counts(ids: list[str]) -> None:
    bug = UserError("a bug in the daemon")
    world = World([NOW_MS], [NOW_MS], [NOW_MS])
    world.fails = {1: bug}
    answer = world.cancel(ids)
    assert (answer["done"], answer["undecided"], answer["why"]) == (2, 1, f"partition 1: {bug}")
    world.fails = {0: bug}
    with pytest.raises(UserError, match="a bug"):
        world.cancel(ids)


@pytest.mark.parametrize("ids", [["10:0:0", "11:0:1"], ["10:0", "11:0"]])
def test_a_partition_whose_broker_goes_away_leaves_the_counts_of_ids(ids: list[str]) -> None:
    world = World([NOW_MS], [NOW_MS])
    world.fails = {1: DaemonAwayError("gone")}
    total = Total(False)
    course = calls.change_of(NAMED | {"what": "cancel"}, positions_of(enumerate(ids), "ids"), total)
    with pytest.raises(DaemonAwayError, match="gone"):
        run_blocking(course, world.ask)
    assert total.counts["done"] == 1


def test_a_partition_whose_broker_goes_away_ends_a_change_with_its_counts() -> None:
    world = World([NOW_MS] * 5, [NOW_MS] * 5)
    world.fails = {1: DaemonAwayError("gone")}
    total = Total(False)
    with pytest.raises(DaemonAwayError, match="gone"):
        run_blocking(calls.change_of_due(NAMED | {"what": "cancel"}, "1..2", total), world.ask)
    assert total.counts["done"] == 5
