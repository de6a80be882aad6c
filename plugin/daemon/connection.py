"""One client's connection: greeting, frames, heartbeats, back-pressure.

``streams`` has its streams; the engine knows the frames' meaning.

Invariants:

- it accepts nothing before HELLO, and nothing once it is closing;
- its bytes of an incomplete frame count together with those of all other connections, and are freed at its
  end;
- while the peer does not read, it makes no DUE and no HELD and reads nothing more from the peer, so
  ``write_buffer_bytes`` and one answer bound its memory;
- it gathers frames that add few entries for each stream, and applies them together before any other frame, at
  the latest at the end of the read: the result is as if they had come one after another;
- it applies everything that the peer had sent before its end, even when a failed write ends the connection:
  that includes a killed broker's last acknowledgements;
- it reads less at a time where that takes long, so that the others get their turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from tidegate.index import Clock
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.half_frames import HalfFrames
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.listener import peer_process
from tidegate.plugin.daemon.outgoing import Answers, Outgoing
from tidegate.plugin.daemon.read_size import MAX_BYTES, ReadSize
from tidegate.plugin.daemon.small_adds import SmallAdds
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.daemon.streams import Streams
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.codec import decode, decode_adds, encode
from tidegate.plugin.wire.control_messages import HttpRequest, Ingest, Query, Reply
from tidegate.plugin.wire.frames import Frame, FrameDecoder, FrameType
from tidegate.plugin.wire.log_messages import LogAnswer
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Bypassed,
    Cancelled,
    Clear,
    Close,
    Credit,
    Error,
    Hello,
    MarkDelete,
    Message,
    Move,
    Open,
    Paced,
    Peeked,
    Ping,
    Pong,
    Rescheduled,
    Role,
    Unack,
    negotiate,
)

if TYPE_CHECKING:
    import structlog

SILENT_HEARTBEATS = 3
BEATS = 4  # checks in one heartbeat
CLOSE_SECONDS = 1.0  # until the cut-off of a peer that does not read its ERROR
NS_PER_MS = 1_000_000


class Connection(asyncio.BufferedProtocol):
    """The server's end of one connection."""

    def __init__(
        self,
        engine: DaemonEngine,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        *,
        metrics: Metrics,
        log: structlog.typing.FilteringBoundLogger,
        heartbeat_ms: int,
        write_buffer_bytes: int,
        may_talk: Callable[[socket.socket], bool],
        half_frames: HalfFrames,
    ) -> None:
        self.lost: asyncio.Future[None] = loop.create_future()
        self.hello: Hello | None = None
        self.log_requests = LogRequests(self.send, loop)
        self.process: str | None = None
        self.writable = True
        self.connected_at_ms = clock.now_ms()
        self._engine = engine
        self._clock = clock
        self._loop = loop
        self._metrics = metrics
        self._log = log
        self._heartbeat_ns = heartbeat_ms * NS_PER_MS
        self._write_buffer_bytes = write_buffer_bytes
        self._may_talk = may_talk
        self._half_frames = half_frames
        self._decoder = FrameDecoder()
        self._read_buffer = bytearray(MAX_BYTES)
        self._read_size = ReadSize()
        self._transport: asyncio.Transport | None = None
        self._peer: socket.socket | None = None
        self._closing = False
        self._added = False
        self._small_adds = SmallAdds()
        self._pause: asyncio.TimerHandle | None = None
        self._paused_ns = 0
        self._streams = Streams(
            self,
            engine,
            clock,
            loop,
            log=log,
            opened=self._opened,
            is_closing=lambda: self._closing,
        )
        self._out = Outgoing(clock, loop, metrics)
        self._answers = Answers(
            clock,
            loop,
            metrics,
            write=self._out.write_frame,
            may_write=lambda: self.writable and not self._closing,
            is_open=self._streams.is_open,
            sent=engine.answer_sent,
            failed=engine.failures.end,
        )
        self._heartbeat: asyncio.TimerHandle | None = None
        self._received_ns = clock.monotonic_ns()
        self._silent_beats = 0

    @property
    def peer_name(self) -> str:
        """The client's name, from its HELLO."""
        return "" if self.hello is None else self.hello.name

    @property
    def version(self) -> int:
        """The spoken version of the protocol; 0 before the greeting."""
        return 0 if self.hello is None else negotiate(self.hello)

    @property
    def product(self) -> str:
        """The client's product, from its HELLO."""
        return "" if self.hello is None else self.hello.product

    @property
    def streams(self) -> Mapping[int, Stream]:
        """Its open streams by number."""
        return self._streams.by_number

    @property
    def is_broker(self) -> bool:
        """True if the client called itself a broker."""
        return self.hello is not None and self.hello.role == Role.BROKER

    @property
    def closing(self) -> bool:
        """True if the connection is about to end."""
        return self._closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        if self._closing:  # there were too many already
            self.abort()
            return
        self._out.connect(self._transport)
        self._transport.set_write_buffer_limits(high=self._write_buffer_bytes)
        if not self._may_talk(transport.get_extra_info("socket")):
            self._log.warning("a process of another user tried to connect")
            self.abort()
            return
        # A second descriptor of the socket: the transport closes its own without reading the rest.
        try:
            self.process = peer_process(transport.get_extra_info("socket"))
            self._peer = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError as error:
            self._log.error("a connection could not be served", error=error.strerror)
            self.abort()
            return
        self._beat()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Called by asyncio: the buffer for the next bytes."""
        return memoryview(self._read_buffer)[: self._read_size.size_bytes]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: ``nbytes`` have come."""
        self._received_ns = self._clock.monotonic_ns()
        self._silent_beats = 0
        self._metrics.bytes_received.inc(nbytes)
        if self._closing:
            return
        whole = self._decoder.frames
        try:
            try:
                for frame in self._decoder.feed(memoryview(self._read_buffer)[:nbytes]):
                    if not self._small_adds.gather(frame, self._streams.by_number.get(frame.stream)):
                        self._apply_gathered()
                        self._on_frame(frame)
                    if self._closing:
                        break
            finally:
                self._apply_gathered()
        except ProtocolError as error:
            self._log.warning(
                "protocol error", peer=self.peer_name, code=error.code.name, error=error.message
            )
            self.fail(error.code, error.message)
        half_bytes = 0 if self._closing else self._decoder.buffered_bytes
        self._half_frames.note_half_frame(self, half_bytes, is_same=whole == self._decoder.frames)
        if self._added:
            self._added = False
            self._pace()
        self._read_size.note_read(self._clock.monotonic_ns() - self._received_ns)

    def give_back(self, why: str) -> None:
        """End the connection, so that others can receive."""
        self._log.warning("closing a connection that takes too much memory", peer=self.peer_name, reason=why)
        self._decoder.discard()
        self.fail(ErrorCode.BUSY, why)

    def _pace(self) -> None:
        """Stop reading for as long as the engine wishes."""
        pause_s = self._engine.read_pause_s()
        now_ns = self._clock.monotonic_ns()
        if self._pause is None:
            if pause_s == 0.0:
                return
            self._paused_ns = now_ns
        if pause_s > 0.0 and not self._closing:
            self._pause = self._loop.call_later(pause_s, self._pace)
        else:
            self._pause = None
            self._metrics.read_pause_seconds.inc((now_ns - self._paused_ns) / 1e9)
        self._set_reading()

    def eof_received(self) -> bool:
        """Called by asyncio: the peer sends no more. The transport closes itself."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Called by asyncio.

        Wakes all waiters for the end, whatever fails here: else a stop of the daemon would wait for ever.
        """
        try:
            self._end()
        finally:
            self.lost.set_result(None)

    def _end(self) -> None:
        self.read_rest()
        self._half_frames.forget(self)
        torn = self._decoder.buffered_bytes
        # Garbage collection would be late: connection and streams refer to each other.
        self._decoder.discard()
        self._read_buffer = bytearray()
        if torn and not self._closing:
            self._log.warning("connection ended inside a frame", peer=self.peer_name, torn_bytes=torn)
        # A stopping broker closes its streams first; a killed one leaves them.
        unclosed = 0 if self._closing else len(self._streams.by_number)
        self._closing = True
        for timer in (self._heartbeat, self._pause):
            if timer is not None:
                timer.cancel()
        self.log_requests.close()
        self._streams.end_all()
        self._answers.stop()
        self.writable = True  # later sends are dropped, and must not wait for room
        self._engine.gone(self, unclosed)

    def read_rest(self) -> None:
        """Apply the unread bytes that the peer has sent, then read nothing more."""
        peer, self._peer = self._peer, None
        if peer is None:
            return
        with peer, contextlib.suppress(OSError):  # nothing more there, or a peer that is gone
            while not self._closing and (count := peer.recv_into(self._read_buffer)):
                self.buffer_updated(count)

    def pause_writing(self) -> None:
        """Called by asyncio: the peer does not take more for now."""
        self.writable = False
        self._set_reading()

    def resume_writing(self) -> None:
        """Called by asyncio: the peer takes data again."""
        self.writable = True
        self._set_reading()
        self._answers.go_on()
        if self.writable:
            self._engine.writable(self)

    def send(self, message: Message, stream_id: int = 0, seq: int = 0) -> None:
        """Send a frame; it leaves at the end of this turn of the loop."""
        if self._transport is None or self._transport.is_closing():
            return
        self._out.write_frame(encode(message, stream_id, seq))
        self._metrics.frames_sent.inc(message.type.name)
        if isinstance(message, Error):
            self._metrics.errors_sent.inc(ErrorCode(message.code).name)

    def end_stream(self, stream: Stream, code: ErrorCode, message: str) -> None:
        """The daemon ends one stream with ERROR."""
        self._streams.end(stream, code, message)

    def close_stream(self, stream: Stream) -> None:
        """Answer CLOSE: the stream has ended as the broker wished."""
        self._streams.close(stream)

    def fail(self, code: ErrorCode, message: str) -> None:
        """Send ERROR on stream 0 and close."""
        if self._closing or self._transport is None:
            return
        self.send(Error(code, message))
        self._closing = True
        self._out.flush()
        transport = self._transport
        transport.close()
        self._loop.call_later(CLOSE_SECONDS, transport.abort)

    def abort(self) -> None:
        """Abort the connection, dropping unsent data."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _opened(self, stream: Stream) -> None:
        self._answers.answer_open(stream)

    # --- incoming ---------------------------------------------------------------------------------

    def _apply_gathered(self) -> None:
        """Apply the gathered frames. Raises ``ProtocolError`` at the first bad one; earlier ones are
        applied.
        """
        gathered = self._small_adds.pop_gathered()
        if gathered is None:
            return
        by_stream = gathered.by_stream
        adds = None
        if all(frames[0].seq == stream.session.next_seq for stream, frames in by_stream.items()):
            with contextlib.suppress(ProtocolError):
                adds = [decode_adds(frames) for frames in by_stream.values()]
        if adds is None:  # one by one, to find the bad frame
            for frame in gathered.arrived:
                self._on_frame(frame)
            return
        self._added = True
        for (stream, frames), add in zip(by_stream.items(), adds, strict=True):
            self._metrics.frames_received.inc(FrameType.ADD.name, len(frames))
            self._engine.apply_change(stream, frames[-1].seq, add, self._received_ns, first_seq=frames[0].seq)

    def _on_frame(self, frame: Frame) -> None:
        message = decode(frame)
        self._metrics.frames_received.inc(message.type.name)
        if self.hello is None:
            if not isinstance(message, Hello):
                raise ProtocolError(ErrorCode.MALFORMED, f"{message.type.name} before HELLO")
            self._on_hello(message)
            return
        match message:
            case Ping():
                self.send(Pong(), 0, frame.seq)
            case Pong():
                pass
            case Query() | Ingest() | HttpRequest() if self.hello.role == Role.CONTROL:
                self._on_request(frame.seq, message)
            case Error():
                self._on_error(frame.stream, message)
            case LogAnswer() | Cancelled() | Rescheduled() | Peeked() if self.hello.role == Role.BROKER:
                self._on_answer(frame, message)
            case Bypassed() if self.hello.role == Role.BROKER:
                self._engine.bypasses.tell(self, message)
            case Open() if self.hello.role == Role.BROKER:
                self._streams.open_stream(frame.stream, message)
            case Paced() | Credit() | Add() | Move() | Ack() | Unack() | MarkDelete() | Clear() | Close() if (
                self.hello.role == Role.BROKER
            ):
                self._added = self._added or isinstance(message, Add)
                self._streams.receive(frame, message, self._received_ns)
            case _:
                raise ProtocolError(
                    ErrorCode.MALFORMED,
                    f"{message.type.name} is not for a {self.hello.role.name.lower()} to send",
                )

    def _on_request(self, seq: int, request: Query | Ingest | HttpRequest) -> None:
        match request:
            case Query():
                self._engine.queries.ask(self, request.request(), partial(self._reply, seq))
            case Ingest():
                self._engine.queries.ingest(self, request, partial(self._reply, seq))
            case HttpRequest():
                self._engine.queries.respond(self, request, partial(self.send, stream_id=0, seq=seq))

    def _on_answer(self, frame: Frame, answer: LogAnswer | Cancelled | Rescheduled | Peeked) -> None:
        if isinstance(answer, LogAnswer):
            self.log_requests.answered(frame.stream, frame.seq, answer)
        else:
            self._streams.decided(frame.stream, frame.seq, answer)

    def _reply(self, seq: int, answer: bytes) -> None:
        self.send(Reply(answer), 0, seq)

    def _on_hello(self, hello: Hello) -> None:
        version = negotiate(hello)
        self.hello = hello
        self.send(self._engine.greet(self, hello, version))

    def _on_error(self, stream_id: int, error: Error) -> None:
        self._log.warning(
            "the peer reports an error", peer=self.peer_name, stream=stream_id, error=error.message
        )
        if stream_id == 0:
            self._closing = True
            if self._transport is not None:
                self._transport.close()
            return
        self._streams.given_up(stream_id)

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._pause is not None or not self.writable:
            self._transport.pause_reading()
        else:
            self._silent_beats = 0  # silence during a standstill here does not count
            self._transport.resume_reading()

    def _beat(self) -> None:
        now_ns = self._clock.monotonic_ns()
        # Beats, not time: a delay of this process is no silence of its peer.
        self._silent_beats += 1
        if self._silent_beats > SILENT_HEARTBEATS * BEATS and self._pause is None:
            silent_ms = (now_ns - self._received_ns) // NS_PER_MS
            self._log.warning("no sign of life, closing", peer=self.peer_name, silent_ms=silent_ms)
            self.read_rest()
            self.abort()
            return
        if self.hello is not None and now_ns - self._out.sent_ns >= self._heartbeat_ns // 2:
            self.send(Ping())
        self._heartbeat = self._loop.call_later(self._heartbeat_ns / BEATS / 1e9, self._beat)
