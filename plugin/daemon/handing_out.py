"""Hands due entries to the streams that can take them: the time of each look, and the entries to send.

Invariants:

- a subscription is handed out to its current stream only, and prefetched only while that stream can take
  more;
- a stream on a busy connection gets its next look when the connection takes data again;
- a stream whose next block is absent gets its next look when the block has come;
- entries that a bug stops between the index and the wire are not lost: their stream ends, and is opened
  again;
- while due entries cannot be read, ``/readyz`` names one of their subscriptions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.index import BlockAwayError, Catalog, Clock, TidegateIndexError
from tidegate.plugin.daemon.due_timer import DueTimer, Pause
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.shared.seldom import Seldom
from tidegate.plugin.shared.shown import shown
from tidegate.plugin.telemetry.health import Health
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.codec import RECORDS_MAX
from tidegate.plugin.wire.messages import Due

if TYPE_CHECKING:
    import structlog

ROUND_S = 0.005  # of handing out, before other work of the loop gets its turn
AGAIN_MS = 5  # the pause after a look that came too early, by too low a bound of the next due time
FRAME_RECORDS_MAX = min(8_192, RECORDS_MAX)  # of one DUE frame


class HandingOut:
    """The streams that wait for due entries.

    on_bug: called with a stream that met an exception other than a storage error.
    """

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        ownership: Ownership,
        *,
        settings: Settings,
        metrics: Metrics,
        health: Health,
        log: structlog.typing.FilteringBoundLogger,
        on_bug: Callable[[Stream, Exception], None],
    ) -> None:
        self._catalog = catalog
        self._ownership = ownership
        self._on_bug = on_bug
        self._retry_ms = settings.storage_retry_ms
        self._metrics = metrics
        self._health = health
        self._log = log
        self._seldom = Seldom(clock.monotonic_ns)
        self._timer: DueTimer[Stream] = DueTimer(clock, loop, self._serve, ROUND_S)
        self._blocked: dict[Link, dict[Stream, None]] = {}
        self._unreadable: dict[Stream, str] = {}

    def stop(self) -> None:
        """Hand out nothing more."""
        self._timer.stop()

    def schedule_look(self, stream: Stream) -> None:
        """Note that the stream has changed: look at it when its next entry is due."""
        self._timer.look_at(stream, self._next_look(stream))

    def end(self, stream: Stream) -> None:
        """Stop looking at a stream that is gone, or has a successor."""
        self._timer.discard(stream)
        self._readable(stream)
        blocked = self._blocked.get(stream.connection)
        if blocked is not None:
            blocked.pop(stream, None)

    def writable(self, connection: Link) -> None:
        """The connection takes data again."""
        for stream in self._blocked.pop(connection, {}):
            self.schedule_look(stream)

    def gone(self, connection: Link) -> None:
        """The connection is closed."""
        self._blocked.pop(connection, None)

    def _next_look(self, stream: Stream) -> int | None:
        """The time of the next look; the index prefetches only for streams that can take more."""
        session = stream.session
        if self._ownership.get(session.name) is stream:
            if session.hands_out:
                self._catalog.ahead.unpark(session.index)
            else:
                self._catalog.ahead.park(session.index)
        return session.wake_at_ms()

    def _serve(self, stream: Stream, now_ms: int) -> int | Pause | None:
        """Hand out one frame's worth; returns when to look at the stream again."""
        if not stream.connection.writable:
            self._blocked.setdefault(stream.connection, {})[stream] = None
            return None
        try:
            return self._hand_out(stream, now_ms)
        except Exception as error:
            self._on_bug(stream, error)
            return None

    def _hand_out(self, stream: Stream, now_ms: int) -> int | Pause | None:
        session = stream.session
        try:
            entries = session.pop_due(now_ms, FRAME_RECORDS_MAX)
        except BlockAwayError:
            return None  # the block is on its way; its arrival causes the next look
        except TidegateIndexError as error:
            more = self._seldom.more("read")
            if more is not None:
                self._log.error(
                    "due entries cannot be read, trying again", stream=repr(session), error=str(error), **more
                )
            self._unreadable[stream] = str(error)
            self._say_unreadable()
            return Pause(self._retry_ms)
        self._readable(stream)
        if len(entries):
            stream.send(Due(entries))
            self._metrics.observe_due(entries.deliver_at_ms, now_ms, stream.told_pace.excused_until_ms)
            if session.credit == 0:
                self._metrics.credit_exhausted.inc()
        again_at_ms = self._next_look(stream)
        if again_at_ms is not None and not len(entries) and again_at_ms < now_ms + AGAIN_MS:
            return Pause(AGAIN_MS)
        return again_at_ms

    def _readable(self, stream: Stream) -> None:
        if self._unreadable.pop(stream, None) is not None:
            self._say_unreadable()

    def _say_unreadable(self) -> None:
        if not self._unreadable:
            self._health.clear("read")
            return
        stream, error = next(iter(self._unreadable.items()))
        others = len(self._unreadable) - 1
        which = shown(str(stream.name)) + (f" and of {others} other subscriptions" if others else "")
        self._health.block(
            "read", f"due entries of {which} cannot be read and come late: {error}; look at the disk"
        )
