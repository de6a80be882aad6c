"""The subscriptions of ``tidegate status``: their state, their order, and those that hold nothing. Pure.

Invariant: a subscription with a state to act on is never idle, so never folded away.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tidegate.plugin.shared.moments import OVERDUE_MS

LOG_BEHIND_SECONDS = 5.0
"""At an object store an index log is a second or two behind."""


class Sort(StrEnum):
    """The orders of subscriptions."""

    WORST = "worst"
    DUE = "due"
    HELD = "held"
    NAME = "name"


class State(StrEnum):
    """The states of a subscription, the worst first."""

    OVERDUE = "overdue"
    PAUSED = "paused"
    DISCONNECTED = "no broker"
    BYPASSED = "bypassed"
    LOG_BEHIND = "log behind"
    OVER_QUOTA = "over quota"
    PACED = "paced"
    OK = "ok"
    IDLE = "idle"


_RANKS = {state: rank for rank, state in enumerate(State)}
_BY_DESIGN = (State.PAUSED, State.DISCONNECTED, State.BYPASSED)
"""They explain why messages are overdue."""


def state_of(one: dict[str, Any], bypassed: set[tuple[str, str]]) -> State:
    """The state of one subscription of an answer; ``bypassed``: topics with subscriptions."""
    found = _states(one, bypassed)
    return next((each for each in _BY_DESIGN if each in found), min(found, key=_RANKS.__getitem__))


def _states(one: dict[str, Any], bypassed: set[tuple[str, str]]) -> set[State]:
    pace = one.get("pace") or {}  # absent from an older daemon
    found = {
        State.BYPASSED: (one["topic"], one["subscription"]) in bypassed,
        State.PAUSED: bool(pace.get("paused")),
        State.DISCONNECTED: one["broker"] is None and one["held"] > 0,
        State.OVERDUE: one["overdue_ms"] >= OVERDUE_MS,
        State.LOG_BEHIND: log_is_behind(one.get("index_log")),
        State.OVER_QUOTA: is_over_quota(one),
        State.PACED: any(pace.values()),
        State.OK: one["held"] > 0,
    }
    return {state for state, holds in found.items() if holds} or {State.IDLE}


def is_over_quota(one: dict[str, Any]) -> bool:
    """True if more messages wait than a policy allows; a quota is known only from a broker."""
    quota = one.get("quota")
    return quota is not None and one["held"] - one["in_flight"] > quota


def log_is_behind(log: dict[str, Any] | None) -> bool:
    """True if an index log cannot be written, or lags more than a healthy one."""
    return log is not None and bool(log["failure"] or log["lag_seconds"] >= LOG_BEHIND_SECONDS)


def bypassed_names(answer: dict[str, Any]) -> set[tuple[str, str]]:
    """The topics with subscriptions that an answer names as bypassed."""
    bypassed = answer.get("bypassed") or {"named": []}  # absent from an older daemon
    return {(one["topic"], one["subscription"]) for one in bypassed["named"]}


def in_order(each: list[dict[str, Any]], sort: Sort, bypassed: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """The subscriptions in the order of ``sort``."""

    def due(one: dict[str, Any]) -> tuple[Any, ...]:
        return one["next_due_ms"] is None, one["next_due_ms"] or 0, -one["held"]

    def key(one: dict[str, Any]) -> tuple[Any, ...]:
        name = one["topic"], one["subscription"]
        match sort:
            case Sort.WORST:
                return _RANKS[state_of(one, bypassed)], *due(one), name
            case Sort.DUE:
                return *due(one), name
            case Sort.HELD:
                return -one["held"], name
            case Sort.NAME:
                return (name,)

    return sorted(each, key=key)
