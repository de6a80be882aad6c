"""The streams of one connection by their numbers: being opened, open, or ended by the daemon.

Invariants:

- a number that is being opened is not open; its frames wait, and are applied in order once it is; more than
  ``LATER_BYTES`` of them end the restoring, because the broker has then read that far itself;
- at most one number of a subscription is being opened: a broker that opens it again has given up the former
  one;
- a stream that the daemon ended is silent until it is opened again: frames already on their way are dropped.
  This holds for the last ``ENDED_MAX``; few have frames on their way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.index import Clock
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.session import Change
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.errors import ErrorCode, ProtocolError, StreamError
from tidegate.plugin.wire.frames import Frame
from tidegate.plugin.wire.messages import Cancelled, Close, Credit, Error, Open, Paced, Peeked, Rescheduled

if TYPE_CHECKING:
    import structlog

LATER_BYTES = 8 * 1024 * 1024
ENDED_MAX = 65_536


@dataclass
class Opening:
    """A stream whose index is still on its way here, and its waiting frames."""

    request: Open
    task: asyncio.Task[None]
    later: list[tuple[Frame, Credit | Paced | Change]] = field(default_factory=list)
    size_bytes: int = 0


class Streams:
    """The open streams of ``connection``.

    opened: called with a stream whose OPEN needs an answer.
    is_closing: true if the connection is about to end; nothing is opened then.
    """

    def __init__(
        self,
        connection: Link,
        engine: DaemonEngine,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        log: structlog.typing.FilteringBoundLogger,
        opened: Callable[[Stream], None],
        is_closing: Callable[[], bool],
    ) -> None:
        self._connection = connection
        self._engine = engine
        self._clock = clock
        self._loop = loop
        self._log = log
        self._opened = opened
        self._is_closing = is_closing
        self._by_number: dict[int, Stream] = {}
        self.by_number: Mapping[int, Stream] = self._by_number
        """The open streams."""
        self._opening: dict[int, Opening] = {}
        self._opening_by_name: dict[tuple[str, str], int] = {}
        self._ended: dict[int, None] = {}  # in the order in which they ended

    def is_open(self, stream: Stream) -> bool:
        """True if the stream is open on this connection."""
        return self.by_number.get(stream.session.stream_id) is stream

    # --- opening ----------------------------------------------------------------------------------

    def open_stream(self, stream_id: int, request: Open) -> None:
        """Open a stream, after its index was brought here if necessary. Raises ``ProtocolError``."""
        if stream_id in self.by_number or stream_id in self._opening:
            raise ProtocolError(ErrorCode.ALREADY_OPEN, f"stream {stream_id} is open already")
        try:
            restoring = self._engine.opener.restoring(self._connection, stream_id, request)
        except StreamError as error:
            self._refuse(stream_id, error)
            return
        name = request.topic, request.subscription
        self._supersede(name)
        if restoring is None:
            self._begin(stream_id, request)
            return

        async def restored() -> None:
            await restoring

        task = self._loop.create_task(restored())
        self._opening[stream_id] = opening = Opening(request, task)
        self._opening_by_name[name] = stream_id
        task.add_done_callback(lambda _: self._restored(stream_id, opening))

    def _supersede(self, name: tuple[str, str]) -> None:
        """Stop opening the former stream of a subscription.

        The broker has a newer tracker, and answers nothing for the former stream, which must neither come
        late and replace the newer one, nor keep others from being restored.
        """
        former_id = self._opening_by_name.get(name)
        if former_id is not None:
            self._stop_opening(former_id)
            self._refuse(
                former_id, StreamError(ErrorCode.STALE_EPOCH, "the subscription was opened again meanwhile")
            )

    def _stop_opening(self, stream_id: int) -> None:
        opening = self._opening.pop(stream_id, None)
        if opening is not None:
            del self._opening_by_name[opening.request.topic, opening.request.subscription]
            opening.task.cancel()
            self._connection.log_requests.end_stream(stream_id)

    def _restored(self, stream_id: int, opening: Opening) -> None:
        if self._opening.get(stream_id) is not opening or self._is_closing():
            return
        request = opening.request
        del self._opening[stream_id], self._opening_by_name[request.topic, request.subscription]
        failure = None if opening.task.cancelled() else opening.task.exception()
        if failure is not None:
            self._log.error("restoring an index failed unexpectedly", exc_info=failure)
        self._begin(stream_id, request)
        now_ns = self._clock.monotonic_ns()
        for frame, message in opening.later:
            try:
                self.receive(frame, message, now_ns)
            except ProtocolError as error:
                self._connection.fail(error.code, error.message)
                return

    def _begin(self, stream_id: int, request: Open) -> None:
        try:
            stream = self._engine.opener.begin_stream(self._connection, stream_id, request)
        except StreamError as error:
            self._refuse(stream_id, error)
            return
        self._ended.pop(stream_id, None)
        self._by_number[stream_id] = stream
        self._opened(stream)

    def _refuse(self, stream_id: int, error: StreamError) -> None:
        self._note_ended(stream_id)
        self._connection.send(Error(error.code, error.message), stream_id)

    # --- frames -----------------------------------------------------------------------------------

    def receive(self, frame: Frame, message: Credit | Paced | Change, received_ns: int) -> None:
        """Take a stream's frame. Raises ``ProtocolError``."""
        stream_id = frame.stream
        opening = self._opening.get(stream_id)
        if opening is not None:
            opening.later.append((frame, message))
            opening.size_bytes += len(frame.payload)
            if opening.size_bytes > LATER_BYTES:
                opening.task.cancel()  # the broker has read so far that it needs no log any more
            return
        stream = self.by_number.get(stream_id)
        if isinstance(message, Paced):
            if stream is not None:  # else it has crossed CLOSE or ERROR, and has no waiter
                self._engine.pacing.told(stream, frame.seq, message)
        elif stream is None:
            if stream_id not in self._ended:
                self._connection.send(Error(ErrorCode.UNKNOWN_STREAM, "the stream is not open"), stream_id)
        elif isinstance(message, Credit):
            self._engine.credit(stream, message.more)
        else:
            self._engine.apply_change(stream, frame.seq, message, received_ns)

    def decided(self, stream_id: int, seq: int, answer: Cancelled | Rescheduled | Peeked) -> None:
        """Note the broker's answer to a CANCEL, RESCHEDULE or PEEK; on an ended stream it has no waiter."""
        stream = self.by_number.get(stream_id)
        if stream is not None:
            self._engine.decided(stream, seq, answer)

    # --- ending -----------------------------------------------------------------------------------

    def end(self, stream: Stream, code: ErrorCode, message: str) -> None:
        """End one stream with ERROR."""
        if self.is_open(stream):
            self._note_ended(stream.session.stream_id)
            self._forget(stream)
            self._connection.send(Error(code, message), stream.session.stream_id)

    def close(self, stream: Stream) -> None:
        """Answer CLOSE: the stream has ended as the broker wished."""
        if self.is_open(stream):
            self._forget(stream)
            stream.send(Close())

    def _note_ended(self, stream_id: int) -> None:
        self._ended.pop(stream_id, None)
        self._ended[stream_id] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def _forget(self, stream: Stream) -> None:
        del self._by_number[stream.session.stream_id]
        self._connection.log_requests.end_stream(stream.session.stream_id)
        self._engine.ended(stream)

    def given_up(self, stream_id: int) -> None:
        """Note that the broker has ended a stream with ERROR."""
        self._stop_opening(stream_id)
        stream = self.by_number.get(stream_id)
        if stream is not None:
            self._forget(stream)

    def end_all(self) -> None:
        """End all streams: the connection is gone."""
        for opening in self._opening.values():
            opening.task.cancel()
        self._opening.clear()
        self._opening_by_name.clear()
        for stream in list(self.by_number.values()):
            self._engine.ended(stream)
        self._by_number.clear()
