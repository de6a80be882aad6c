"""One answer about a partitioned topic, with partitions perhaps on many brokers.

A broker asked for a partitioned topic by its own name answers with the number of partitions. Each is then
asked at its owner, one after the other. Invariants:

- a message, and a ledger, is in one partition: ids, cursors and times of partitions do not collide;
- a partition without an index at its owner may have messages: it has just moved, or has no consumers. No
  answer takes it for an empty one, unless Pulsar counts no backlog; if all are so, the name is unknown;
- a change names a partition whose broker can do nothing now, and changes the others;
- a page has the first messages of all partitions, and its cursor fits each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tidegate.plugin.api.changes import (
    NAMED_MAX,
    OUTCOMES,
    POSITIONS_MAX,
    Answer,
    Asking,
    Course,
    Positions,
    Query,
    Total,
    raise_unless_late,
)
from tidegate.plugin.errors import NotNowError, UnknownNameError, UserError
from tidegate.plugin.shared.message_ids import message_id, parse_id
from tidegate.plugin.shared.topics import full_topic

_PAGE_LEAST = 256
_PAGE_DEFAULT = 1_000
_BUCKETS_MAX = 1_000
_STEP_LEAST_MS = 1_000
BACKLOG = "backlog"
"""The query for Pulsar's own statistics of a topic; only a broker answers it."""
_STATES = ("waiting", "handed_out", "acknowledged", "unknown")
"""States of a message: one partition has it, and others may have acknowledged beyond its id."""
_LEFT_OUT = (UnknownNameError, NotNowError)
"""Errors of one partition that do not stop a change of the others."""


class PartitionedError(UserError):
    """The topic has partitions, each to be asked for by its own name."""

    def __init__(self, said: str, partitions: int) -> None:
        super().__init__(said)
        self.partitions = partitions


def name_of(topic: str, partition: int) -> str:
    """The topic of a partition."""
    return f"{topic}-partition-{partition}"


def looked(query: Query) -> Course:
    """Ask a query, of each partition if there are any. A change goes out as it is."""
    try:
        return (yield query)
    except PartitionedError as error:
        merge = _MERGES.get(query["what"])
        if merge is None:
            raise
        partitions = error.partitions
    try:
        return (yield from merge(query, partitions))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"the answer has a form that this version does not know: {error!r}") from error


_Without = dict[int, UserError]
"""Why partitions have no answer, by their numbers."""


@dataclass
class _Told:
    """The partitions' answers, and those without one."""

    answers: list[Answer] = field(default_factory=list)
    without: _Without = field(default_factory=dict)


def _why(partition: int, error: UserError) -> str:
    if not isinstance(error, UnknownNameError):
        return f"partition {partition}: {error}"
    return (
        f"partition {partition} has no index at its owner, and may have messages: "
        f"ask again when a consumer is there ({error})"
    )


def _of_each(
    query: Query, partitions: int, *, though: tuple[type[UserError], ...] = (UnknownNameError,)
) -> Asking[_Told]:
    """The partitions' answers; `though` leaves one out. Raises the first such error if none is left."""
    told = _Told()
    for one in range(partitions):
        try:
            told.answers.append((yield query | {"topic": name_of(query["topic"], one)}))
        except though as error:
            told.without[one] = error
    if not told.answers:
        raise next(iter(told.without.values()))
    return told


def _without_empty(query: Query, without: _Without) -> Asking[_Without]:
    """The partitions where messages may wait, as far as Pulsar knows."""
    left: _Without = {}
    for one, error in without.items():
        if not isinstance(error, UnknownNameError) or not (yield from _is_empty(query, one)):
            left[one] = error
    return left


def _is_empty(query: Query, partition: int) -> Asking[bool]:
    """True if Pulsar's statistics of a partition count no unacknowledged message."""
    name, subscription = name_of(query["topic"], partition), query.get("subscription") or "*"
    try:
        found = (yield {"what": BACKLOG, "topic": name})["subscriptions"]
        counted = found.values() if "*" in subscription else [found.get(subscription, {"msgBacklog": 0})]
        return all(one["msgBacklog"] == 0 for one in counted)
    except (UserError, KeyError, TypeError, AttributeError):
        return False


# ---- tide


def _tide(query: Query, partitions: int) -> Course:
    told = yield from _of_each(query, partitions)
    answers = told.answers
    if len(answers) > 1 and query.get("span_ms") is None:
        # With the longest step: others do not add up.
        step_ms = query.get("step_ms") or max(map(_step_ms, answers))
        now_ms = min(one["now_ms"] for one in answers)
        last_ms = max(one["buckets"][-1]["until_ms"] for one in answers)
        span_ms = min(last_ms - now_ms, (_BUCKETS_MAX - 1) * step_ms)
        told = yield from _of_each(query | {"step_ms": step_ms, "span_ms": span_ms}, partitions)
    tide = tides_added(told.answers)
    away = yield from _without_empty(query, told.without)
    return tide | {"subscriptions_away": tide["subscriptions_away"] + len(away)}


def _step_ms(answer: Answer) -> int:
    buckets = answer["buckets"]
    if len(buckets) == 1:
        return _STEP_LEAST_MS  # its one bucket ends at a step, and begins anywhere
    step_ms: int = buckets[-1]["until_ms"] - buckets[-1]["from_ms"]
    return step_ms


def tides_added(answers: list[Answer]) -> Answer:
    """The sum of tides of one step. A bucket missing in some is among `later`."""
    end_ms = min(one["buckets"][-1]["until_ms"] for one in answers)
    buckets: dict[int, dict[str, int]] = {}
    later = sum(one["later"] for one in answers)
    for answer in answers:
        for one in answer["buckets"]:
            if one["until_ms"] > end_ms:
                later += one["entries"]
                continue
            known = buckets.setdefault(one["until_ms"], dict(one, entries=0))
            known["from_ms"] = min(known["from_ms"], one["from_ms"])
            known["entries"] += one["entries"]
    counted = ("subscriptions", "subscriptions_away", "entries", "overdue", "inexact_entries")
    rates = [rate for one in answers if (rate := one.get("drain_per_second")) is not None]
    return answers[0] | {
        **{name: sum(one[name] for one in answers) for name in counted},
        "drain_per_second": round(sum(rates), 3) if rates else None,
        "buckets": [buckets[until_ms] for until_ms in sorted(buckets)],
        "later": later,
    }


# ---- waiting


def _waiting(query: Query, partitions: int) -> Course:
    limit = query.get("limit") or _PAGE_DEFAULT
    part = min(limit, max(_PAGE_LEAST, -(-2 * limit // partitions)))
    told = yield from _of_each(query | {"limit": part}, partitions)
    unknown = yield from _without_empty(query, told.without)
    if unknown:
        # Without it, the page's cursor would pass its messages over.
        raise NotNowError(_why(*next(iter(unknown.items()))))
    return pages_merged(told.answers, limit)


def pages_merged(answers: list[Answer], limit: int) -> Answer:
    """The first `limit` entries of pages in due order; fewer if one page ends before that."""
    entries = sorted((one for answer in answers for one in answer["entries"]), key=_key)
    ends = [_cursor_key(answer["next"]) for answer in answers if answer["next"] is not None]
    if ends:
        # Behind its end a page has more, perhaps before the others' messages there.
        entries = [one for one in entries if _key(one) <= min(ends)]
    page = entries[:limit]
    # With a filter a page may be empty, with others behind it.
    end = _key(page[-1]) if len(entries) > limit else min(ends, default=())
    merged: Answer = {"entries": page, "next": ":".join(map(str, end)) or None}
    for name in ("read", "read_bytes"):
        if name in answers[0]:
            merged[name] = sum(one[name] for one in answers)
    return answers[0] | merged


def _key(entry: dict[str, Any]) -> tuple[int, int, int]:
    (ledger_id, entry_id), _ = parse_id(entry["message_id"])
    return int(entry["deliver_at_ms"]), ledger_id, entry_id


def _cursor_key(cursor: str) -> tuple[int, ...]:
    return tuple(map(int, cursor.split(":")))


# ---- one message, and the pace


def _show(query: Query, partitions: int) -> Course:
    _, partition = parse_id(str(query["id"]))
    if partition is not None:
        _require(partition, partitions)
        return (yield query | {"topic": name_of(query["topic"], partition)})
    told = yield from _of_each(query, partitions)
    return min(told.answers, key=lambda one: _STATES.index(one["state"]))


def _pace(query: Query, partitions: int) -> Course:
    told = yield from _of_each(query, partitions, though=_LEFT_OUT)
    subscriptions = [each for one in told.answers for each in one["subscriptions"]]
    topic = full_topic(query["topic"])
    subscriptions += [
        {"topic": name_of(topic, one), "subscription": query["subscription"], "why": _why(one, error)}
        for one, error in told.without.items()
    ]
    return told.answers[0] | {
        "done": not told.without and all(one["done"] for one in told.answers),
        "held_back": sum(one["held_back"] for one in told.answers),
        "subscriptions": subscriptions,
    }


_MERGES = {"tide": _tide, "waiting": _waiting, "show": _show, "pace": _pace}


# ---- changes


def _raise_unless_of_one(error: UserError, total: Total) -> None:
    """Raise an error unless it leaves out one partition, or follows a change to report."""
    if not isinstance(error, _LEFT_OUT):
        raise_unless_late(error, total)


def _require(partition: int, partitions: int) -> None:
    if partition >= partitions:
        raise UserError(f"partition {partition} is not of this topic, which has {partitions}: check the id")


def change_of(query: Query, positions: Positions, total: Total, partitions: int) -> Course:
    """Ask `query` of all positions, each of its partition; ids without one are asked of each in turn."""
    for partition in positions:
        if partition is not None:
            _require(partition, partitions)
    known = False
    left_out: list[tuple[UserError, str, list[str]]] = []
    for partition, some in positions.items():
        ids = [message_id(partition, *one) for one in some]
        for batch in _batches(ids, NAMED_MAX if partition is None else POSITIONS_MAX):
            try:
                if partition is None:
                    yield from _change_anywhere(query, batch, partitions, total)
                else:
                    total.add((yield query | {"topic": name_of(query["topic"], partition), "ids": batch}))
                known = True
            except UserError as error:
                _raise_unless_of_one(error, total)
                why = str(error) if partition is None else _why(partition, error)
                left_out.append((error, why, batch))
    if not known and left_out:
        raise left_out[0][0]
    for _, why, batch in left_out:
        total.why = why
        total.leave_ids(batch)
    return total.answer()


def _batches(ids: list[str], size: int) -> list[list[str]]:
    return [ids[at : at + size] for at in range(0, len(ids), size)]


def _all(outcome: str, ids: list[str]) -> Answer:
    return dict.fromkeys(OUTCOMES, 0) | {outcome: len(ids), "ids": {outcome: ids}}


def _change_anywhere(query: Query, ids: list[str], partitions: int, total: Total) -> Asking[None]:
    """Change a few ids without partitions: a partition does not own ids that it does not know.

    `total` has each answer as it comes, even if a later one is an error.
    """
    left = {_bare(one): one for one in ids}
    undecided: dict[str, str] = {}
    without: _Without = {}
    answers, why = 0, ""
    for one in range(partitions):
        if not left:
            break
        try:
            answer = yield query | {"topic": name_of(query["topic"], one), "ids": list(left.values())}
        except UserError as error:
            _raise_unless_of_one(error, total)
            without[one] = error
            continue
        answers += 1
        elsewhere = {_bare(named) for named in answer["ids"].get("unknown", [])}
        unsure = {_bare(named): named for named in answer["ids"].get("undecided", [])}
        undecided |= unsure
        why = answer.get("why", why)
        total.add(answer | {"unknown": 0, "undecided": 0, "ids": _decided(answer["ids"]), "why": total.why})
        left = {bare: named for bare, named in left.items() if bare in elsewhere or bare in unsure}
    if not answers and without:
        raise next(iter(without.values()))
    sure = {} if without else {bare: named for bare, named in left.items() if bare not in undecided}
    total.add(_all("unknown", list(sure.values())))
    unsure_ids = [undecided.get(bare, left[bare]) for bare in left if bare not in sure]
    if unsure_ids:
        total.leave_ids(unsure_ids)
        total.why = why or (_why(*next(iter(without.items()))) if without else total.why)


def _bare(text: str) -> str:
    return message_id(None, *parse_id(text)[0])


def _decided(ids: dict[str, list[str]]) -> dict[str, list[str]]:
    return {outcome: named for outcome, named in ids.items() if outcome not in {"unknown", "undecided"}}


def change_of_due(query: Query, chosen: dict[str, Any], total: Total, partitions: int) -> Course:
    """Ask `query` of the `chosen` messages, partition by partition, past one that stops."""
    known = False
    without: _Without = {}
    for one in range(partitions):
        of_one = query | chosen | {"topic": name_of(query["topic"], one)}
        after = None
        while True:
            try:
                answer = yield of_one | {"after": after}
            except UserError as error:
                _raise_unless_of_one(error, total)
                without[one] = error
                break
            known = True
            total.add(answer)
            after = answer.get("next")
            if after is None or answer.get("stopped"):
                break
    if without and not known:
        raise next(iter(without.values()))
    without = yield from _without_empty(query, without)
    if without:
        total.stop(_why(*next(iter(without.items()))))
    return total.answer()
