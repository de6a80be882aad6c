"""The effects of a commit: DURABLE for the brokers, the end of closed streams, and the store's health.

Invariants: a stream that cannot be told keeps no other from its news; while the store fails, nothing counts
as durable, and every stream with a failed frame is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate.index import Clock, LostCommitsError, StorageError
from tidegate.plugin.daemon.failures import Failures
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.session import Durability
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.messages import Durable

if TYPE_CHECKING:
    import structlog


class DurableNews:
    """Tells the effects of commits.

    failing: the latest commit has failed.
    lost: set when the store has lost durable data, so that the caller ends this engine and starts a new one.
    """

    def __init__(
        self,
        clock: Clock,
        retention: Retention,
        failures: Failures,
        *,
        metrics: Metrics,
        health: Health,
        logs: IndexLogs | None,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self.failing = False
        self.lost = asyncio.Event()
        self._clock = clock
        self._retention = retention
        self._failures = failures
        self._metrics = metrics
        self._health = health
        self._logs = logs
        self._log = log

    def on_durable(self, stream: Stream, durability: Durability) -> None:
        """Tell that frames of ``stream`` are on disk."""
        try:
            stream.send(Durable(), durability.seq)
            self._metrics.durable_lag.observe((self._clock.monotonic_ns() - durability.received_ns) / 1e9)
            if stream.session.closing and not stream.session.undurable_frames:
                if self._logs is None:
                    self._close(stream)
                else:
                    self._logs.after_last_words(stream, lambda: self._close(stream))
        except Exception as error:
            self._failures.end(stream, error)  # else the others would not hear

    def on_committed(self, seconds: float) -> None:
        """Note that a commit succeeded, and took ``seconds``."""
        self._metrics.commit_duration.observe(seconds)
        self._metrics.commits.inc("ok")
        if self.failing:
            self.failing = False
            self._health.clear("storage")
            self._log.info("the store works again")

    def on_commit_failed(self, waiting: Iterable[Stream], error: StorageError) -> None:
        """Note that a commit failed; the frames of ``waiting`` are not durable."""
        self._metrics.commits.inc("failed")
        if not self.failing:
            self._log.error("frames cannot be made durable, trying again", error=str(error))
        self.failing = True
        self._health.block(
            "storage", f"nothing new can be made durable, held messages are still delivered: {error}"
        )
        if isinstance(error, LostCommitsError):
            self.lost.set()
        for stream in waiting:
            if stream.session.undurable_frames:
                stream.connection.end_stream(stream, ErrorCode.STORAGE, str(error))

    def _close(self, stream: Stream) -> None:
        if self._logs is not None and stream.session.cleared:
            self._logs.delete(stream)
        stream.connection.close_stream(stream)
        self._retention.forget_if_empty(stream.session.index)
