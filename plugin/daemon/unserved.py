"""The time since which subscriptions have had no stream, so that the daemon can forget abandoned ones.

A subscription that has moved to another broker hardly ever comes back to this daemon, unannounced. Time is
monotonic: a set wall clock must not age all at once. Invariant: subscriptions stay in the order in which they
lost their stream.
"""

from __future__ import annotations

from tidegate.index import SubscriptionName


class Unserved:
    """Subscriptions without a stream; ``keep_ns``: how long they are kept, 0 for ever."""

    def __init__(self, keep_ns: int) -> None:
        self._keep_ns = keep_ns
        self._since_ns: dict[SubscriptionName, int] = {}

    def __len__(self) -> int:
        return len(self._since_ns)

    def begin(self, name: SubscriptionName, now_ns: int) -> None:
        """Note that ``name`` has no stream from now on."""
        self.end(name)
        self._since_ns[name] = now_ns

    def end(self, name: SubscriptionName) -> None:
        """Note that ``name`` has a stream again, or is gone."""
        self._since_ns.pop(name, None)

    def take_expired(self, now_ns: int) -> list[SubscriptionName]:
        """Remove and return those without a stream for too long."""
        if not self._keep_ns:
            return []
        expired = []
        for name, since_ns in self._since_ns.items():
            if now_ns - since_ns < self._keep_ns:
                break
            expired.append(name)
        for name in expired:
            del self._since_ns[name]
        return expired
