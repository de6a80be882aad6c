"""The choice of a home for index logs: the one that a broker offers for a stream, or that of a pointer.

Invariant: a log is read only from BookKeeper, or from the URL in the broker's own conf file: a cursor's
properties lead the daemon nowhere else.
"""

from __future__ import annotations

import secrets

from tidegate.index import Identity, SubscriptionName
from tidegate.index.log import About, Home, ObjectHome, RefusedError
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER, BrokerHome, LogRequests
from tidegate.plugin.daemon.homes.object_stores import (
    TAIL_ENTRIES_MAX,
    ObjectStores,
    checked_url,
    interval_ms,
    is_url,
)
from tidegate.plugin.wire.messages import Open


class Homes:
    """The homes of one daemon's logs."""

    def __init__(self) -> None:
        self._stores = ObjectStores()

    def close(self) -> None:
        """Begin nothing more."""
        self._stores.close()

    def offered(self, requests: LogRequests, stream_id: int, request: Open) -> Home | None:
        """The home in which the broker wants the log of a stream; None for none.

        Raises RefusedError if this daemon cannot reach it.
        """
        return self._home(request.log_home, requests, stream_id, request) if request.log_home else None

    def named(self, kind: str, requests: LogRequests, stream_id: int, request: Open) -> Home:
        """The home that a pointer names. Raises RefusedError if this daemon does not reach it."""
        if kind != BOOKKEEPER and kind != request.log_home.rstrip("/"):
            kept = f"where this broker keeps its own ({request.log_home})" if request.log_home else "reached"
            raise RefusedError(f"it is in {kind}, which is not {kept}")
        return self._home(kind, requests, stream_id, request)

    def _home(self, kind: str, requests: LogRequests, stream_id: int, request: Open) -> Home:
        at_broker = BrokerHome(requests, stream_id)
        if kind == BOOKKEEPER:
            return at_broker
        if not is_url(kind):
            raise RefusedError(f"this daemon does not know the home {kind}")
        try:
            url = checked_url(kind)
        except ValueError as error:
            raise RefusedError(f"the URL of the index logs is refused: {error}") from None
        name = SubscriptionName(request.topic, request.subscription)
        return ObjectHome(
            lambda: self._stores.opened(url),
            About(Identity(name, request.incarnation), request.epoch),
            kind=url,
            interval_ms=interval_ms(url),
            tail_entries_max=TAIL_ENTRIES_MAX,
            random=lambda: secrets.randbits(32),
            offload=self._stores.offload,
            point=at_broker.point,
        )
