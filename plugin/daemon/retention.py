"""Forgets subscriptions no longer needed: their index, their epoch, and the time since they wait.

Losing an index costs reading the topic again, never a message. Invariants: a subscription with a stream
stays, as does, for a while, an empty index to whose log a pointer may still come: only its data says that the
log is its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING

from tidegate.index import Catalog, Clock, DelayIndex, SubscriptionName
from tidegate.plugin.daemon import width
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.daemon.unserved import Unserved

if TYPE_CHECKING:
    import structlog

NS_PER_DAY = 86_400_000_000_000
KEPT_NS = 60_000_000_000  # longer than a broker takes to write a pointer


class Retention:
    """Decides what to forget, and when. ``commit_soon``: called after a removal from the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        ownership: Ownership,
        *,
        settings: Settings,
        commit_soon: Callable[[], None],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._ownership = ownership
        self._settings = settings
        self._commit_soon = commit_soon
        self._log = log
        self._unserved = Unserved(int(settings.forget_days * NS_PER_DAY))
        self._kept_until_ns: dict[SubscriptionName, int] = {}

    def unserved(self, index: DelayIndex) -> None:
        """Note that the subscription has no stream: its index is neither popped nor prefetched.

        Does nothing if that index was replaced: it belongs to no subscription any more.
        """
        if self._catalog.get(index.name) is index:
            self._catalog.ahead.park(index)
            self._unserved.begin(index.name, self._clock.monotonic_ns())

    def served(self, name: SubscriptionName) -> None:
        """The subscription has a stream."""
        self._unserved.end(name)

    def keep(self, index: DelayIndex) -> None:
        """Keep an index for a while, though empty: a pointer to one of its logs may still come."""
        self._kept_until_ns.pop(index.name, None)
        self._kept_until_ns[index.name] = self._clock.monotonic_ns() + KEPT_NS

    def _forget_kept(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for name in list(takewhile(lambda one: self._kept_until_ns[one] <= now_ns, self._kept_until_ns)):
            del self._kept_until_ns[name]
            index = self._catalog.get(name)
            if index is not None:
                self.forget_if_empty(index)

    def forget_unserved(self) -> None:
        """Remove the indexes that no broker has opened for ``forget_days``, and empty ones kept so far."""
        self._forget_kept()
        for name in self._unserved.take_expired(self._clock.monotonic_ns()):
            if self._catalog.get(name) is not None:
                self._log.info(
                    "no broker has opened a subscription for a long time, its index is removed",
                    topic=name.topic,
                    subscription=name.subscription,
                    days=self._settings.forget_days,
                )
                self._forget(name)

    def forget_if_empty(self, index: DelayIndex) -> None:
        """Forget a closed subscription without entries, acknowledgements and own width."""
        served = self._ownership.get(index.name) is not None or self._catalog.get(index.name) is not index
        kept = index.name in self._kept_until_ns
        if not (served or kept) and index.state.empty and not width.is_own(index, self._settings):
            self._forget(index.name)

    def _forget(self, name: SubscriptionName) -> None:
        self._catalog.remove(name)
        self._ownership.forget(name)
        self._unserved.end(name)
        self._commit_soon()
