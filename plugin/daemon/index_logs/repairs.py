"""Repairs an index with a damaged block from its log, if that has the block: the stream ends, the broker
opens it again, and the answer comes from the log.

Invariants:

- an index without a log, or with one that cannot be written or has not caught up after such a failure, stays,
  and its block's positions are read from the topic; so does one read from its log a short while ago: on a
  disk that loses all writes, due entries would never get out of their block;
- for an index without a stream, the next OPEN is answered from the log;
- no consequence of the damage gets into the log;
- changes told between the damage and the end of the stream are in no log: the answer to the next OPEN lacks
  them, and the broker tells them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.index import Clock, DelayIndex, SubscriptionName
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

NS_PER_SECOND = 1_000_000_000
REST_S = 600
"""A disk that loses one write after another must not have its subscriptions opened all the time."""


class Rests:
    """The subscriptions read from their logs in the last ``REST_S``, each a few bytes."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._since_ns: dict[SubscriptionName, int] = {}  # in the order in which they began

    def __len__(self) -> int:
        return len(self._since_ns)

    def begin(self, name: SubscriptionName) -> bool:
        """Have a subscription rest from now on; False if it rests already."""
        now_ns = self._monotonic_ns()
        while self._since_ns:
            first = next(iter(self._since_ns))
            if now_ns - self._since_ns[first] < REST_S * NS_PER_SECOND:
                break
            del self._since_ns[first]
        if name in self._since_ns:
            return False
        self._since_ns[name] = now_ns
        return True


class Repairs:
    """Repairs damaged blocks."""

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        ownership: Ownership,
        logs: IndexLogs,
        *,
        log: Logger,
    ) -> None:
        self._rests = Rests(clock.monotonic_ns)
        self._loop = loop
        self._ownership = ownership
        self._logs = logs
        self._log = log

    def met(self, index: DelayIndex) -> None:
        """A block of the index is damaged. `Catalog.on_corrupt_block` has the prohibitions."""
        stream = self._ownership.get(index.name)
        if stream is None:
            if self._logs.has_all(index):
                index.damaged = True  # the next OPEN gets it from there
                self._loop.call_soon(self._logs.doubt, index)
            return
        if index.damaged or stream.session.index is not index:
            return
        if not self._logs.readable(stream) or not self._rests.begin(index.name):
            return
        # At once: the next persist removes the block, and must not get into the log.
        self._logs.leave(stream)
        index.damaged = True
        self._loop.call_soon(self._end, stream)

    def _end(self, stream: Stream) -> None:
        self._logs.doubt(stream.session.index)
        self._log.warning(
            "a block of an index is damaged, its stream is opened again so that its log is read instead",
            topic=stream.name.topic,
            subscription=stream.name.subscription,
        )
        stream.connection.end_stream(
            stream, ErrorCode.STORAGE, "a block of the index is damaged, its log is read instead"
        )
