"""The operations of ``/tidegate/v1``: one table of paths, parameters and bodies.

The broker's web service and the daemon's HTTP side serve the same paths. A name is one percent-encoded
segment, and data: a slash in a topic is ``%2F``, a star a star. Invariant: anything outside the table is
refused, so a misspelt ``dry_run`` changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from tidegate.plugin.api import fields
from tidegate.plugin.api.changes import FILTERS, POSITIONS_MAX
from tidegate.plugin.api.fields import Field, TooManyError
from tidegate.plugin.api.problem import ProblemError
from tidegate.plugin.shared.moments import AT_MS_MAX, AT_MS_MIN, RANGE_HELP
from tidegate.plugin.wire.release_pace import RATE_MAX, SPREAD_MS_MAX, SPREAD_MS_MIN

BASE = "/tidegate/v1"
DOMAINS: Mapping[str, tuple[str, ...]] = {
    "persistent": ("tenant", "namespace", "topic"),
    "segment": ("tenant", "namespace", "topic", "segment"),
    "topic": ("tenant", "namespace", "topic"),
}
"""The names of a topic by its domain; ``topic``: a scalable one, with all its segments. A partition is a
topic, ``orders-partition-3``.
"""
NAMESPACE_DOMAIN = "persistent"
"""The domain in the path of a namespace, whose topics may be of any."""
LIMIT_MAX = 10_000
CHANGED_MAX = 100_000  # messages of one request that names no ids
_ID_LENGTH_MAX = 80
_FILTER_MAX = 8_192
_NAME_MAX = 8_192
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Scope(Enum):
    """The names in a path before the operation's own part."""

    EVERYTHING = ()
    NAMESPACE = ("namespace",)
    TOPIC = ("topic",)
    SUBSCRIPTION = ("topic", "subscription")


@dataclass(frozen=True)
class Operation:
    """A row of the table.

    what: its query, with `fixed` besides a request's values. name: its own, where others have the same query.
    path: below the scope; ``{id}`` takes any one segment. body: None for none. one_of: a body has exactly one
        of these.
    """

    what: str
    method: str
    scope: Scope
    path: tuple[str, ...]
    summary: str
    answer: str
    parameters: Mapping[str, Field]
    body: Mapping[str, Field] | None = None
    one_of: tuple[str, ...] = ()
    name: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """True if it changes messages, whose ids or due times the body has."""
        return self.body is not None and "ids" in self.body


MESSAGE_ID = {"type": "string", "pattern": r"^\d{1,18}:\d{1,18}(:\d{1,9})?$", "examples": ["17:4711"]}
_MOMENT = r"[-0-9A-Za-z:.+]{1,40}"
_DUE = fields.words(RANGE_HELP, 83, rf"({_MOMENT})?\.\.({_MOMENT})?", "10m..1h")
_AFTER = fields.words(
    "The cursor that ended the answer before.", 80, r"\d{1,19}:\d{1,19}:\d{1,19}", "1760000000000:17:4711"
)
_SPAN = {
    "span_ms": fields.number("How far to look; without: to the last message.", 1),
    "step_ms": fields.number("A bucket's width; without: fits 60.", 1),
}
_FILTERS = {
    "key": fields.words("Only messages with this key. The broker reads messages for that.", _FILTER_MAX),
    "property": fields.words(
        "Only messages with this property, NAME=VALUE. The broker reads messages for that.",
        2 * _FILTER_MAX,
        r"[^=]+=[\s\S]*",
        "customer=4711",
    ),
}
_CHOICE = {
    "ids": fields.texts("Messages.", POSITIONS_MAX, MESSAGE_ID, _ID_LENGTH_MAX),
    "due": _DUE,
    "all": fields.only_true("All that wait."),
    **_FILTERS,
    "after": _AFTER,
    "dry_run": fields.truth("Only count."),
}
CHOSEN = ("ids", "due", "all")
"""The ways to choose messages; with one of ``FILTERS`` alone all waiting ones."""
_WHEN = {
    "at_ms": fields.number("The new time, in ms since 1970.", AT_MS_MIN, AT_MS_MAX, "ms since 1970"),
    "by_ms": fields.number(
        "Later than now due; less than 0 is earlier. Do not repeat a request that has it and no answer, or "
        "500, 502, 503, 504, or undecided: it may be done, as GET messages/{id} tells, and would move twice.",
        -AT_MS_MAX,
        AT_MS_MAX,
    ),
}


def _change(what: str, summary: str, more: Mapping[str, Field] | None = None) -> Operation:
    body = {**_CHOICE, **(more or {})}
    return Operation(what, "POST", Scope.SUBSCRIPTION, (what,), summary, "Changed", {}, body, CHOSEN)


_PACE = {
    "rate": fields.number("Messages that leave a second at most, the oldest first.", 1, RATE_MAX),
    "spread_ms": fields.number("Time over which a burst is spread.", SPREAD_MS_MIN, SPREAD_MS_MAX),
}


def _pace(name: str, path: str, summary: str, body: Mapping[str, Field], **fixed: str) -> Operation:
    return Operation(
        "pace",
        "POST",
        Scope.SUBSCRIPTION,
        (path,),
        summary,
        "Pace",
        {},
        body,
        tuple(body),
        name,
        fixed,
    )


OPERATIONS = (
    Operation("openapi", "GET", Scope.EVERYTHING, ("openapi.json",), "This description.", "Description", {}),
    Operation(
        "tide",
        "GET",
        Scope.EVERYTHING,
        ("tide",),
        "How many messages of many subscriptions come due when.",
        "Tide",
        {
            "topic": fields.words("A topic; * is anything; without: all.", _NAME_MAX),
            "subscription": fields.words("A subscription; * is anything; without: all.", _NAME_MAX),
            **_SPAN,
        },
    ),
    Operation(
        "status",
        "GET",
        Scope.EVERYTHING,
        ("status",),
        "The daemon's state, its brokers and subscriptions, and faults of this moment.",
        "Status",
        {
            "sort": fields.words(
                "The subscriptions at the top: most held, or due first.", 4, "held|due", "due"
            ),
            "containing": fields.words(
                "Only subscriptions with this text in 'TOPIC, SUBSCRIPTION', in any case of letters.",
                _NAME_MAX,
            ),
        },
    ),
    Operation(
        "tide",
        "GET",
        Scope.NAMESPACE,
        ("tide",),
        "How many messages of a namespace's subscriptions come due when.",
        "Tide",
        _SPAN,
    ),
    Operation(
        "tide",
        "GET",
        Scope.TOPIC,
        ("tide",),
        "How many messages of a topic's subscriptions come due when.",
        "Tide",
        _SPAN,
    ),
    Operation(
        "tide",
        "GET",
        Scope.SUBSCRIPTION,
        ("tide",),
        "How many messages come due when.",
        "Tide",
        _SPAN,
    ),
    Operation(
        "waiting",
        "GET",
        Scope.SUBSCRIPTION,
        ("waiting",),
        "A page of the messages that wait, in due order.",
        "Page",
        {
            "due": _DUE,
            "limit": fields.number("Messages to answer with at most.", 1, LIMIT_MAX),
            "after": _AFTER,
            **_FILTERS,
        },
    ),
    Operation(
        "show", "GET", Scope.SUBSCRIPTION, ("messages", "{id}"), "The state of one message.", "Message", {}
    ),
    _change("cancel", "Take messages back before they are delivered."),
    _change("release", "Have messages delivered now."),
    _change("reschedule", "Have messages delivered at another time.", _WHEN),
    Operation("pace", "GET", Scope.SUBSCRIPTION, ("pace",), "The pace at which messages leave.", "Pace", {}),
    _pace("set_pace", "pace", "Let messages leave at a rate, or a burst over a time.", _PACE),
    _pace("pause", "pause", "Let no message leave.", {}, kind="paused"),
    _pace("resume", "resume", "Let messages leave as they come due.", {}, kind="none"),
)


@dataclass(frozen=True)
class Place:
    """A parsed path: the operations there by method, and the names in it."""

    operations: Mapping[str, Operation]
    names: Mapping[str, str]

    def operation(self, method: str) -> Operation:
        """The operation of a method. Raises ``ProblemError``."""
        found = self.operations.get("GET" if method == "HEAD" else method)
        if found is None:
            known = sorted({*self.operations, *(["HEAD"] if "GET" in self.operations else [])})
            raise ProblemError.of_method(known)
        return found


def place_of(raw_path: str) -> Place:
    """The operations for a percent-encoded path. Raises ``ProblemError``."""
    segments = [_decoded(one) for one in raw_path.split("/")[1:]]
    scope, names, tail = _scope(segments[2:]) if segments[:2] == ["tidegate", "v1"] else (None, {}, [])
    found = {}
    for one in OPERATIONS:
        if one.scope is scope and len(one.path) == len(tail):
            more = {
                name[1:-1]: given
                for name, given in zip(one.path, tail, strict=True)
                if name.startswith("{") and given
            }
            literal = [(a, b) for a, b in zip(one.path, tail, strict=True) if not a.startswith("{")]
            if all(a == b for a, b in literal) and len(more) == len(one.path) - len(literal):
                found[one.method] = one
                names = {**names, **more}
    if not found:
        raise ProblemError(
            HTTPStatus.NOT_FOUND, f"nothing is at this path: {BASE}/openapi.json lists the paths"
        )
    return Place(found, names)


def _scope(segments: list[str]) -> tuple[Scope | None, dict[str, str], list[str]]:
    parts = DOMAINS.get(segments[0]) if segments else None
    if parts is None:
        return Scope.EVERYTHING, {}, segments
    names, below = segments[1 : 1 + len(parts)], segments[1 + len(parts) :]
    if not all(names):
        return None, {}, []
    if any("/" in one for one in names[:2]):
        raise ProblemError(HTTPStatus.NOT_FOUND, "a tenant or a namespace has no slash")
    if not below:
        found = Scope.NAMESPACE if segments[0] == NAMESPACE_DOMAIN else None
        return found, {"namespace": "/".join(names[:2])}, names[2:]
    topic = {"topic": f"{segments[0]}://{'/'.join(names)}"}
    if len(below) == 1:
        return Scope.TOPIC, topic, below
    if not below[0]:
        return None, {}, []
    return Scope.SUBSCRIPTION, {**topic, "subscription": below[0]}, below[1:]


def _decoded(segment: str) -> str:
    if _BAD_ESCAPE.search(segment):
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "the path has a % that two hexadecimal digits do not follow"
        )
    try:
        return unquote_to_bytes(segment).decode("utf-8")
    except UnicodeDecodeError:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the path is not UTF-8") from None


def path_of(operation: Operation, names: Mapping[str, str]) -> str:
    """The path of an operation for these names. Raises ``ValueError`` for a topic that does not fit in."""
    segments: list[str] = []
    if operation.scope is Scope.NAMESPACE:
        segments += [NAMESPACE_DOMAIN, *names["namespace"].split("/")]
    elif operation.scope is not Scope.EVERYTHING:
        domain, separator, rest = names["topic"].partition("://")
        parts = DOMAINS.get(domain)
        given = rest.split("/", len(parts) - 1) if parts else []
        if not separator or not parts or len(given) != len(parts) or not all(given):
            raise ValueError(
                f"{names['topic'][:80]!r} is no topic in full: persistent://tenant/namespace/topic"
            )
        segments += [domain, *given]
    if operation.scope is Scope.SUBSCRIPTION:
        segments.append(names["subscription"])
    segments += [names[one[1:-1]] if one.startswith("{") else one for one in operation.path]
    return "/".join([BASE, *(_encoded(one) for one in segments)])


def _encoded(segment: str) -> str:
    # A client would take these two for steps in the path.
    return segment.replace(".", "%2E") if segment in {".", ".."} else quote(segment, safe="")


def parameters_of(operation: Operation, raw_query: str) -> dict[str, Any]:
    """The values in a query string. Raises ``ProblemError``."""
    try:
        pairs = parse_qsl(raw_query, keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the query string cannot be read") from None
    given: dict[str, object] = {}
    for name, text in pairs:
        if name in given:
            raise ProblemError(HTTPStatus.BAD_REQUEST, f"{name[:80]} is given twice")
        known = operation.parameters.get(name)
        given[name] = text if known is None else _of(name, text, known.text)
    values = _values(operation.parameters, given)
    _check_filters(values)
    return values


def body_of(operation: Operation, given: object) -> dict[str, Any]:
    """The values in a body. Raises ``ProblemError``."""
    if not isinstance(given, dict):
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
    values = _values(operation.body or {}, given)
    chosen = [one for one in operation.one_of if one in values]
    _check_filters(values)
    if operation.changes and not chosen and any(one in values for one in FILTERS):
        chosen = ["all"]
    if operation.one_of and len(chosen) != 1:
        known = ", ".join(operation.one_of)
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"the body needs exactly one of {known}")
    if operation.changes and chosen == ["ids"]:
        for name in ("after", *FILTERS):
            if name in values:
                raise ProblemError(HTTPStatus.BAD_REQUEST, f"{name} goes with due or all")
    if "at_ms" in (operation.body or {}) and ("at_ms" in values) == ("by_ms" in values):
        raise ProblemError(HTTPStatus.BAD_REQUEST, "the body needs exactly one of at_ms, by_ms")
    if "by_ms" in values and chosen != ["ids"]:
        raise ProblemError(
            HTTPStatus.BAD_REQUEST, "by_ms goes with ids: a message moved on could be met twice"
        )
    return values


def _check_filters(values: Mapping[str, object]) -> None:
    if all(one in values for one in FILTERS):
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"give one of {', '.join(FILTERS)}")


def _values(known: Mapping[str, Field], given: Mapping[str, object]) -> dict[str, Any]:
    unknown = [name for name in given if name not in known]
    if unknown:
        can = f"known: {', '.join(known)}" if known else "nothing can be given here"
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"{unknown[0][:80]!r} is not known; {can}")
    return {name: _of(name, value, known[name].read) for name, value in given.items()}


def _of(name: str, value: Any, read: Any) -> Any:
    try:
        return read(value)
    except TooManyError as error:
        raise ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"{name} {error}") from None
    except ValueError as error:
        raise ProblemError(HTTPStatus.BAD_REQUEST, f"{name} {error}") from None
