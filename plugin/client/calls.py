"""Queries as HTTP calls, without I/O: a path for each, the error in each answer, redirects, retries.

Invariants: a redirect keeps method and body, and the scheme, because the token goes with it; a call may be
repeated, since the same change twice is that change. Exceptions: a change by a span is not repeated, and a
change of due messages only after a refusal: a lost first answer would name messages unknown to the second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from tidegate.plugin.api.changes import (
    FILTERS,
    PAGE_ENTRIES,
    POSITIONS_MAX,
    Answer,
    Course,
    Positions,
    Query,
    Total,
    check_span,
    positions_of,
    raise_unless_late,
    unite,
)
from tidegate.plugin.api.routes import OPERATIONS, Scope, path_of
from tidegate.plugin.client import partitions
from tidegate.plugin.client.partitions import PartitionedError
from tidegate.plugin.errors import ConfigError, DaemonAwayError, NotNowError, UnknownNameError, UserError
from tidegate.plugin.shared.message_ids import message_id
from tidegate.plugin.shared.shown import one_line, without_passwords
from tidegate.plugin.shared.topics import full_topic

ANSWER_BYTES_MAX = 16 << 20
PARTITIONS_MAX = 100_000
REDIRECTS_MAX = 5
RETRIES = 4
RETRY_FIRST_S = 0.1
RETRY_AFTER_MAX_S = 5.0
AGAIN = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_LOST = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)
_REDIRECTS = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)
_DETAIL_MAX = 500
NO_DAEMON = "no-daemon"
"""The ``reason`` in the problem document of a broker without a daemon."""
_STAR = "*"
_ALL_OF_NAMESPACE = re.compile(r"(?:persistent://)?([^/*]+/[^/*]+)/\*")


class RefusedError(UserError):
    """A server's refusal; `status` is the HTTP status."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status


@dataclass(frozen=True)
class Call:
    """A request. body: JSON, None for none."""

    method: str
    url: str
    parameters: Mapping[str, str]
    body: bytes | None


@dataclass(frozen=True)
class Reply:
    """The answer to a call."""

    status: int
    body: bytes
    location: str | None = None
    retry_after: str | None = None


@dataclass(frozen=True)
class Pause:
    """Wait so long, then continue."""

    seconds: float


Talk = Generator[Call | Pause, Reply | DaemonAwayError | None, Answer]
"""Yields a call, takes its reply or the reason for a missing one; yields a pause, takes None."""


def base_of(url: str) -> str:
    """The base for paths. Raises ``ConfigError``."""
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        parts = urlsplit(base)
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or parts.query or parts.fragment:
        raise ConfigError(
            f"{without_passwords(base)!r} is no URL of HTTP: write it as in http://127.0.0.1:8088"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL has a user or a password: give a token instead")
    return base


def call_of(base: str, query: Query) -> Call:
    """A query's call; it may have `ids` but no `positions`. Raises ``UserError``."""
    given = {name: value for name, value in query.items() if value is not None}
    what = str(given.pop("what"))
    if what == partitions.BACKLOG:
        return Call("GET", base + _statistics_path(full_topic(given["topic"])), {}, None)
    scope = _scope(what, given)
    name = _pace(given) if what == "pace" else ""
    operation = next(
        (one for one in OPERATIONS if (one.what, one.scope, one.name) == (what, scope, name)), None
    )
    if operation is None:
        raise UserError(f"{what} cannot be asked over HTTP")
    names = {}
    if scope is Scope.NAMESPACE:
        names["namespace"] = _namespace(given.pop("topic"))
    elif scope is not Scope.EVERYTHING:
        names["topic"] = full_topic(str(given.pop("topic")))
    if scope is Scope.SUBSCRIPTION:
        names["subscription"] = str(given.pop("subscription"))
        names |= {"id": str(given.pop("id")).strip()} if what == "show" else {}
    try:
        url = base + path_of(operation, names)
    except ValueError as error:
        raise UserError(str(error)) from None
    if operation.body is not None:
        return Call(operation.method, url, {}, json.dumps(given).encode())
    return Call(operation.method, url, {name: str(value) for name, value in given.items()}, None)


def _statistics_path(topic: str) -> str:
    domain, _, rest = topic.partition("://")
    names = [quote(one, safe="") for one in rest.split("/", 2)]
    return "/".join(["", "admin", "v2", domain, *names, "stats"])


def _scope(what: str, given: dict[str, Any]) -> Scope:
    """A query's scope; a tide of all, or of a pattern, has the names as parameters."""
    if what != "tide":
        return Scope.SUBSCRIPTION
    for name in ("topic", "subscription"):
        if given.get(name) == _STAR:
            del given[name]
    topic, subscription = given.get("topic"), given.get("subscription")
    if subscription is None and topic is not None and _namespace(topic):
        return Scope.NAMESPACE
    if topic is None or _STAR in topic or _STAR in (subscription or ""):
        return Scope.EVERYTHING
    return Scope.TOPIC if subscription is None else Scope.SUBSCRIPTION


def _namespace(topic: str) -> str:
    """The namespace of a pattern for all its topics, as ``a/b/*``; else empty."""
    found = _ALL_OF_NAMESPACE.fullmatch(topic)
    return "" if found is None else found[1]


def _pace(given: dict[str, Any]) -> str:
    """The operation for a pace; its kind becomes a value of the body."""
    kind, amount = given.pop("kind", None), given.pop("amount", None)
    if kind in {"rate", "spread"}:
        given["rate" if kind == "rate" else "spread_ms"] = amount
        return "set_pace"
    return {"paused": "pause", "none": "resume"}.get(kind, "")


def talk(base: str, query: Query, *, retries: int = RETRIES) -> Talk:
    """Ask a query: calls, redirects and pauses, until there is an answer. Raises ``UserError``."""
    first = call = call_of(base, query)
    redirects, tries_left, pause_s = 0, retries, RETRY_FIRST_S
    if query.get("by_ms") is not None:
        tries_left = 0  # perhaps made: a repetition would make it twice
    while True:
        reply = yield call
        if isinstance(reply, Reply) and reply.status in _REDIRECTS:
            redirects += 1
            call = _redirected(call, reply, redirects)
            continue
        lost = not isinstance(reply, Reply) or reply.status in _LOST
        if lost and (query.get("all") or query.get("due")) and first.body is not None:
            said = reply if isinstance(reply, DaemonAwayError) else f"no answer from {base}"
            raise DaemonAwayError(f"{said}; some may be changed, and would not be counted if asked again")
        again = isinstance(reply, DaemonAwayError) or (isinstance(reply, Reply) and reply.status in AGAIN)
        if not again or not tries_left:
            if isinstance(reply, Reply):
                return answer_of(reply, call)
            raise reply or DaemonAwayError(f"no answer from {base}")
        yield Pause(_pause_s(reply, pause_s))
        # From the beginning: the topic may have moved.
        call, redirects, tries_left, pause_s = first, 0, tries_left - 1, 2 * pause_s


def _pause_s(reply: Reply | DaemonAwayError | None, pause_s: float) -> float:
    said = reply.retry_after if isinstance(reply, Reply) else None
    if said is not None and said.isascii() and said.isdigit():
        return min(max(pause_s, float(said[:9])), RETRY_AFTER_MAX_S)
    return pause_s


def _redirected(call: Call, reply: Reply, redirects: int) -> Call:
    if redirects > REDIRECTS_MAX:
        raise NotNowError(f"{REDIRECTS_MAX} redirects lead to no owner of the topic: ask again soon")
    shown = one_line(without_passwords(reply.location or ""))[:_DETAIL_MAX]
    try:
        there = urljoin(call.url, reply.location or "")
        parts, before = urlsplit(there), urlsplit(call.url)
    except ValueError:
        raise UserError(f"a redirect leads to {shown!r}, which is no URL") from None
    if reply.location is None or not parts.hostname or parts.scheme != before.scheme or parts.username:
        raise UserError(
            f"a redirect from {before.scheme} leads to {shown!r}: the token stays with its scheme"
        )
    # It already has the call's query.
    return Call(call.method, there, {} if parts.query else call.parameters, call.body)


_TOO_LONG = (
    "its web server takes no request that long: httpMaxRequestHeaderSize is the broker's limit, and a proxy "
    "may have its own"
)
_UNSAID: Mapping[int, str] = {
    HTTPStatus.UNAUTHORIZED: "give one that this cluster accepts",
    HTTPStatus.REQUEST_URI_TOO_LONG: _TOO_LONG,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: _TOO_LONG,
}
"""The details of a broker that refuses by a page of its own, before the request reaches Tidegate's
servlet.
"""


def answer_of(reply: Reply, call: Call) -> Answer:
    """The answer in a reply. Raises ``UserError``."""
    parts = urlsplit(call.url)
    server = f"{parts.scheme}://{parts.netloc}"
    try:
        answer = json.loads(reply.body)
    except (ValueError, RecursionError):
        answer = None
    if reply.status == HTTPStatus.OK and isinstance(answer, dict):
        return answer
    said = answer.get("detail") if isinstance(answer, dict) else None
    detail = one_line(str(said))[:_DETAIL_MAX] if said else _UNSAID.get(reply.status, "is it a Tidegate?")
    match reply.status:
        case HTTPStatus.UNAUTHORIZED:
            raise RefusedError(reply.status, f"{server} takes no such token: {detail}")
        case HTTPStatus.CONFLICT if (count := _partitions(answer)) is not None:
            raise PartitionedError(f"{server}: {detail}", count)
        case HTTPStatus.NOT_FOUND if said:
            raise UnknownNameError(f"{server}: {detail}")
        case HTTPStatus.SERVICE_UNAVAILABLE if said:
            away = isinstance(answer, dict) and answer.get("reason") == NO_DAEMON
            raise (DaemonAwayError if away else NotNowError)(f"{server}: {detail}")
        case _:
            raise RefusedError(reply.status, f"{server} answers {reply.status}: {detail}")


def _partitions(answer: object) -> int | None:
    """A problem document's number of partitions; None without one."""
    count = answer.get("partitions") if isinstance(answer, dict) else None
    return count if isinstance(count, int) and 0 < count <= PARTITIONS_MAX else None


def change_of(query: Query, positions: Positions, total: Total) -> Course:
    """Ask `query` of all positions, by their ids. As in ``changes``, but for HTTP."""
    check_span(query, positions)
    ended = False
    for ids in _batches(positions):
        if ended:
            total.leave_ids(ids)
            continue
        try:
            total.add((yield query | {"ids": ids}))
        except PartitionedError as error:
            return (yield from partitions.change_of(query, positions, total, error.partitions))
        except UserError as error:
            raise_unless_late(error, total)
            ended, total.why = True, str(error)
            total.leave_ids(ids)
    return total.answer()


def change_of_due(query: Query, due: str | None, total: Total) -> Course:
    """Ask `query` of all messages due in `due`, None for all waiting ones.

    due: with times that mean the same in each request. The server goes through them, except for a change by a
    span, which takes ids. Ends when the server does: nothing can be decided now.
    """
    if query.get("by_ms") is not None:
        return (yield from _change_of_listed(query, due, total))
    chosen: dict[str, Any] = {"all": True} if due is None else {"due": due}
    after = None
    while True:
        try:
            answer = yield query | chosen | {"after": after}
        except PartitionedError as error:
            return (yield from partitions.change_of_due(query, chosen, total, error.partitions))
        except UserError as error:
            raise_unless_late(error, total)
            return total.stop(str(error))
        total.add(answer)
        after = answer.get("next")
        if after is None or total.stopped:
            return total.answer()


def _change_of_listed(query: Query, due: str | None, total: Total) -> Course:
    found: Positions = {}
    asked = {"what": "waiting", "topic": query["topic"], "subscription": query["subscription"], "due": due}
    asked |= {name: query[name] for name in FILTERS if name in query}
    query = {name: value for name, value in query.items() if name not in FILTERS}
    after = None
    while True:
        page = yield asked | {"after": after, "limit": PAGE_ENTRIES}
        names = [one["message_id"] for one in page["entries"]]
        if names:
            unite(found, positions_of(enumerate(names, start=1), "the index"))
        after = page["next"]
        if after is None:
            return (yield from change_of(query, found, total))


def _batches(positions: Positions) -> Iterable[list[str]]:
    batch: list[str] = []
    for partition, some in positions.items():
        for ledger_id, entry_id in some:
            batch.append(message_id(partition, ledger_id, entry_id))
            if len(batch) == POSITIONS_MAX:
                yield batch
                batch = []
    if batch:
        yield batch
