"""Index logs that the daemon deletes: those of cleared subscriptions.

Invariant: at most ``CLEARED_MAX`` cleared subscriptions are known; beyond that all are forgotten, and a last
word about one may revive its index.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tidegate.index import Identity
from tidegate.index.log import HomeError, ObjectHome
from tidegate.plugin.daemon.index_logs.log_failures import LogFailures

CLEARED_MAX = 10_000


class Deletions:
    """Deletes them. spawn: makes a task."""

    def __init__(
        self, spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]], failures: LogFailures
    ) -> None:
        self._spawn = spawn
        self._failures = failures
        self._cleared: set[Identity] = set()
        """Identities whose log was deleted, and not served by a stream since."""
        self._running: dict[Identity, asyncio.Task[None]] = {}

    def begin(self, identity: Identity, home: ObjectHome) -> None:
        """Delete a subscription's logs."""
        if len(self._cleared) >= CLEARED_MAX:
            self._cleared.clear()
        self._cleared.add(identity)
        self._running[identity] = task = self._spawn(self._delete(identity, home))
        task.add_done_callback(lambda done: self._forget(identity, done))

    async def _delete(self, identity: Identity, home: ObjectHome) -> None:
        try:
            await home.delete_all()
        except HomeError as error:
            self._failures.report(
                identity.name, "the index log of a deleted subscription is left behind", error
            )

    def _forget(self, identity: Identity, task: asyncio.Task[None]) -> None:
        if self._running.get(identity) is task:
            del self._running[identity]

    def running(self, identity: Identity) -> asyncio.Task[None] | None:
        """The deletion under way: it would take along a new log."""
        return self._running.get(identity)

    def pop_cleared(self, identity: Identity) -> bool:
        """True if the log was deleted, at the first call since."""
        cleared = identity in self._cleared
        self._cleared.discard(identity)
        return cleared
