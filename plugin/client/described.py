"""Each call of a client, described once: its queries, and the result from their answers.

Invariant: a mistake in the arguments is a ``UserError`` before any request.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.plugin.api.changes import Asking, Query, Total, positions_of, require_read
from tidegate.plugin.client.messages import Changed, MessageState, Pace, Tide, WaitingMessage, page_of
from tidegate.plugin.client.reaches import Cutting
from tidegate.plugin.errors import UserError


class Described:
    """The calls; ``client`` runs them. reach: cuts a change into queries."""

    def __init__(self, reach: Cutting) -> None:
        self._reach = reach

    def tide(
        self,
        topic: str | None = None,
        subscription: str | None = None,
        *,
        span_ms: int | None = None,
        step_ms: int | None = None,
    ) -> Asking[Tide]:
        """The number of messages coming due, by time; ``*`` in a name is anything, no name is all."""
        query = _named("tide", topic or "*", subscription or "*")
        return Tide.of((yield query | {"span_ms": span_ms, "step_ms": step_ms}))

    def page(
        self,
        topic: str,
        subscription: str,
        due: str | None,
        after: str | None,
        limit: int,
        *,
        key: str | None = None,
        property: str | None = None,
    ) -> Asking[tuple[list[WaitingMessage], str | None]]:
        """The next `limit` waiting messages, less those without `key` or `property`; and the next cursor."""
        kept = _kept(key, property)
        query = _named("waiting", topic, subscription) | kept
        answer = yield query | {"due": due, "after": after, "limit": limit}
        require_read(kept, answer)
        return page_of(answer)

    def show(self, topic: str, subscription: str, message_id: str) -> Asking[MessageState]:
        """The state of one message."""
        return MessageState.of((yield _named("show", topic, subscription) | {"id": message_id}))

    def cancel(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        key: str | None = None,
        property: str | None = None,
        dry_run: bool = False,
    ) -> Asking[Changed]:
        """Take messages back before they are delivered: those of `ids`, those due in `due`, or all.

        `ids` are read and checked in full before the first is cancelled, then sent in batches. key, property
        (NAME=VALUE): of those in `due`, or of all, only messages that have it; the broker reads them.
        """
        query = _named("cancel", topic, subscription)
        return (
            yield from self._change(query, ids, due, every=all, dry_run=dry_run, kept=_kept(key, property))
        )

    def release(
        self,
        topic: str,
        subscription: str,
        *,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        key: str | None = None,
        property: str | None = None,
        dry_run: bool = False,
    ) -> Asking[Changed]:
        """Have messages delivered now; chosen as in ``cancel``, less what `due` or `all` has due already."""
        query = _named("release", topic, subscription)
        return (
            yield from self._change(query, ids, due, every=all, dry_run=dry_run, kept=_kept(key, property))
        )

    def reschedule(
        self,
        topic: str,
        subscription: str,
        *,
        at_ms: int | None = None,
        by_ms: int | None = None,
        ids: Iterable[str] | None = None,
        due: str | None = None,
        all: bool = False,
        key: str | None = None,
        property: str | None = None,
        dry_run: bool = False,
    ) -> Asking[Changed]:
        """Have messages delivered at `at_ms`, or `by_ms` later than they are due; chosen as in ``cancel``.

        A change by a span is never sent twice.
        """
        query = _named("reschedule", topic, subscription) | {"at_ms": at_ms, "by_ms": by_ms}
        return (
            yield from self._change(query, ids, due, every=all, dry_run=dry_run, kept=_kept(key, property))
        )

    def pause(self, topic: str, subscription: str) -> Asking[Pace]:
        """Let no message leave; everything is kept."""
        return Pace.of((yield _named("pace", topic, subscription) | {"kind": "paused"}))

    def resume(self, topic: str, subscription: str) -> Asking[Pace]:
        """Let messages leave as they come due."""
        return Pace.of((yield _named("pace", topic, subscription) | {"kind": "none"}))

    def pace(
        self, topic: str, subscription: str, *, rate: int | None = None, spread_ms: int | None = None
    ) -> Asking[Pace]:
        """Let messages leave at `rate` a second, or a burst over `spread_ms`; with neither, only ask."""
        if rate is not None and spread_ms is not None:
            raise UserError("give one of rate and spread_ms")
        wanted: Query = {}
        if rate is not None:
            wanted = {"kind": "rate", "amount": rate}
        elif spread_ms is not None:
            wanted = {"kind": "spread", "amount": spread_ms}
        return Pace.of((yield _named("pace", topic, subscription) | wanted))

    def _change(
        self,
        query: Query,
        ids: Iterable[str] | None,
        due: str | None,
        *,
        every: bool,
        dry_run: bool,
        kept: Query,
    ) -> Asking[Changed]:
        if ids is None and due is None:
            every = every or bool(kept)
        if sum((ids is not None, due is not None, every)) != 1:
            raise UserError("give one of ids, due and all")
        if ids is not None and kept:
            raise UserError("key and property go with due or all")
        query |= kept
        if query["what"] == "reschedule" and (query["at_ms"] is None) == (query["by_ms"] is None):
            raise UserError("give one of at_ms and by_ms")
        query["dry_run"] = dry_run
        total = Total(dry_run)
        if ids is None:
            course = self._reach.change_of_due(query, due, total)
        else:
            course = self._reach.change(query, positions_of(enumerate(ids, start=1), "ids"), total)
        return Changed.of((yield from course))


def _named(what: str, topic: str, subscription: str) -> Query:
    return {"what": what, "topic": topic, "subscription": subscription}


def _kept(key: str | None, given: str | None) -> Query:
    """A restriction to messages with this key or property. Raises ``UserError``."""
    if key is not None and given is not None:
        raise UserError("give one of key and property")
    kept = {"key": key, "property": given}
    return {name: value for name, value in kept.items() if value is not None}
