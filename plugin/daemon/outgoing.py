"""A connection's sending side: gathers frames for one write, and answers OPEN as fast as the peer reads.

Invariants:

- everything written in one turn of the loop leaves in one write, or in pieces of ``FLUSH_BYTES``;
- an answer to OPEN has the positions held at one instant, and is encoded in steps, with a turn for all others
  between them: it may have 100,000 ledgers;
- the rest of an answer is dropped if its stream has ended;
- an answer that cannot be made is reported, and delays no other one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from tidegate.index import Clock
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.codec import encode
from tidegate.plugin.wire.frames import FrameType

FLUSH_BYTES = 64 * 1024
STEP_NS = 5_000_000  # of encoding answers, before other work of the loop gets its turn


class Outgoing:
    """The frames that leave at the end of this turn of the loop."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._transport: asyncio.Transport | None = None
        self._frames: list[bytes] = []
        self._size_bytes = 0
        self.sent_ns = clock.monotonic_ns()
        """Time of the last send."""

    def connect(self, transport: asyncio.Transport) -> None:
        """The peer is there."""
        self._transport = transport

    def write_frame(self, data: bytes) -> None:
        """Send a frame's bytes, together with all others of this turn."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames.append(data)
        self._size_bytes += len(data)
        if self._size_bytes >= FLUSH_BYTES:
            self.flush()  # so that the transport can say "enough" before the turn is over

    def flush(self) -> None:
        """Send the gathered frames now."""
        if self._frames and self._transport is not None and not self._transport.is_closing():
            data = b"".join(self._frames)
            self.sent_ns = self._clock.monotonic_ns()
            self._metrics.bytes_sent.inc(len(data))
            self._transport.write(data)
        self._frames.clear()
        self._size_bytes = 0


class Answers:
    """One connection's answers to OPEN, one after another.

    may_write: true while the peer takes more; on its next change to true, ``go_on`` is called. is_open: true
    while the stream is there. sent: called after a stream's last HELD is written. failed: called with a
    stream that gets no more of its answer.
    """

    def __init__(
        self,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        metrics: Metrics,
        *,
        write: Callable[[bytes], None],
        may_write: Callable[[], bool],
        is_open: Callable[[Stream], bool],
        sent: Callable[[Stream], None],
        failed: Callable[[Stream, Exception], None],
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._write = write
        self._may_write = may_write
        self._is_open = is_open
        self._sent = sent
        self._failed = failed
        self._waiting: deque[Stream] = deque()
        self._answering: tuple[Stream, Iterator[bytes]] | None = None
        self._next_step: asyncio.Handle | None = None

    def answer_open(self, stream: Stream) -> None:
        """Answer the OPEN of ``stream``, after the earlier ones."""
        self._waiting.append(stream)
        self.go_on()

    def go_on(self) -> None:
        """Encode one turn's share, unless a turn is scheduled already."""
        if self._next_step is None:
            self._step()

    def stop(self) -> None:
        """Answer nothing more."""
        self._waiting.clear()
        self._answering = None
        if self._next_step is not None:
            self._next_step.cancel()

    def _step(self) -> None:
        self._next_step = None
        begin_ns = self._clock.monotonic_ns()
        while self._may_write():
            if self._answering is None:
                if not self._waiting:
                    return
                stream = self._waiting.popleft()
                self._answering = stream, self._encode(stream)
            frame = self._next_frame(*self._answering)
            if frame is None:
                self._answering = None
            else:
                self._write(frame)
            if self._clock.monotonic_ns() - begin_ns > STEP_NS:
                self._next_step = self._loop.call_soon(self._step)
                return

    def _next_frame(self, stream: Stream, frames: Iterator[bytes]) -> bytes | None:
        try:
            return next(frames, None)
        except Exception as error:
            # Without its last HELD a stream would never get an entry.
            self._failed(stream, error)
            return None

    def _encode(self, stream: Stream) -> Iterator[bytes]:
        """The frames of an answer; the first one fixes the held positions."""
        if not self._is_open(stream):
            return  # ended while it waited
        for held in stream.session.held_frames():
            yield encode(held, stream.session.stream_id)
            self._metrics.frames_sent.inc(FrameType.HELD.name)
            if not self._is_open(stream):
                return  # its number may be another stream's by now, which would take the rest for its answer
        self._sent(stream)
