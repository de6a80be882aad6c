"""A broker's side of the daemon's socket, as fast as Python permits: for measuring only.

One thread sends and receives on a non-blocking socket. An ADD counts as sent when its first byte is offered
to the socket: later delays are part of its time until DURABLE.

Invariants: at most ``window`` entries of all streams are sent and not durable; a stream's frames go in call
order, and a DURABLE counts for all up to its number.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from bench.harness.errors import BenchError
from tidegate.index import Entries, PositionSet, SubscriptionName
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Credit,
    Due,
    Durable,
    Error,
    Held,
    Hello,
    Message,
    Open,
    Ping,
    Pong,
    Role,
    Welcome,
)

READ_BYTES = 256 * 1024
PATIENCE_S = 60.0


class _Sent(NamedTuple):
    seq: int
    entries: int
    at_ns: int


class BrokerStream:
    """One subscription's stream. ``held`` is the answer to OPEN."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.held = PositionSet()
        self.answered = False
        self.seq = 0
        self.sent: deque[_Sent] = deque()
        self.due: list[Entries] = []


class BrokerClient:
    """One connection of a broker."""

    def __init__(self, path: Path, window: int, name: str = "bench") -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._decoder = FrameDecoder()
        self._streams: dict[int, BrokerStream] = {}
        self._welcome = False
        self._pongs: list[int] = []
        self._window = window
        self.outstanding = 0
        self.latency_ns = array("q")
        self.latency_entries = array("q")
        self._send(Hello(VERSION_MIN, VERSION_MAX, Role.BROKER, name, "bench"))
        self.until(lambda: self._welcome, "WELCOME")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def open(self, name: SubscriptionName, *, credit: int = 0, horizon_ms: int = 0) -> BrokerStream:
        """Start a stream; ``until`` it is ``answered`` no entries come."""
        stream = BrokerStream(len(self._streams) + 1)
        self._streams[stream.stream_id] = stream
        request = Open(
            bytes(range(16)), 1, 1, horizon_ms, credit, (-1, -1), name.topic, name.subscription, PositionSet()
        )
        self._send(request, stream.stream_id)
        return stream

    def add(self, stream: BrokerStream, entries: Entries) -> None:
        """Send entries as one frame, once the window has room."""
        self.until(lambda: self.outstanding + len(entries) <= self._window, "DURABLE")
        self._counted(stream, Add(entries, near=False), len(entries))

    def add_small(self, stream: BrokerStream, entries: Entries, size: int) -> None:
        """Send entries in frames of ``size``, many in one write, once the window has room for all."""
        self.until(lambda: self.outstanding + len(entries) <= self._window, "DURABLE")
        frames = []
        for start in range(0, len(entries), size):
            part = entries.part(start, min(start + size, len(entries)))
            stream.seq += 1
            frames.append(encode(Add(part, near=False), stream.stream_id, stream.seq))
        stream.sent.append(_Sent(stream.seq, len(entries), time.perf_counter_ns()))
        self.outstanding += len(entries)
        self._send_bytes(b"".join(frames))
        self._answer_pings()

    def ack(self, stream: BrokerStream, positions: PositionSet) -> None:
        """Send acknowledgements as one frame, once the window has room."""
        count = len(positions)
        self.until(lambda: self.outstanding + count <= self._window, "DURABLE")
        self._counted(stream, Ack(positions), count)

    def credit(self, stream: BrokerStream, more: int) -> None:
        """Grant ``more`` entries."""
        self._send(Credit(more), stream.stream_id)

    def all_durable(self) -> None:
        """Wait until all sent entries are durable."""
        self.until(lambda: not self.outstanding, "DURABLE")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Read until ``happened``. Raises BenchError at the deadline."""
        give_up_s = time.monotonic() + PATIENCE_S
        while not happened():
            self._wait(select.POLLIN)
            self._answer_pings()
            if time.monotonic() > give_up_s:
                raise BenchError(f"the daemon has not sent {what} for {PATIENCE_S:g} s")

    def latency_ms(self, probability: float) -> float:
        """That quantile of the time until DURABLE, over entries; 0 without any."""
        if not self.latency_ns:
            return 0.0
        taken = np.frombuffer(self.latency_ns, dtype=np.int64)
        weight = np.frombuffer(self.latency_entries, dtype=np.int64)
        order = np.argsort(taken)
        at = np.searchsorted(np.cumsum(weight[order]), probability * weight.sum())
        return float(taken[order][min(at, len(order) - 1)]) / 1e6

    # ---- the socket

    def _counted(self, stream: BrokerStream, message: Message, entries: int) -> None:
        data = encode(message, stream.stream_id, stream.seq + 1)
        stream.seq += 1
        stream.sent.append(_Sent(stream.seq, entries, time.perf_counter_ns()))
        self.outstanding += entries
        self._send_bytes(data)
        self._answer_pings()

    def _answer_pings(self) -> None:
        pongs, self._pongs = self._pongs, []
        for seq in pongs:
            self._send_bytes(encode(Pong(), 0, seq))

    def _send(self, message: Message, stream_id: int = 0, seq: int = 0) -> None:
        self._send_bytes(encode(message, stream_id, seq))

    def _send_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                self._wait(select.POLLIN | select.POLLOUT)
        self._wait(select.POLLIN, timeout_ms=0)

    def _wait(self, events: int, timeout_ms: int = 1_000) -> None:
        self._poll.register(self._socket, events)
        for _, happened in self._poll.poll(timeout_ms):
            if happened & ~select.POLLOUT:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise BenchError("the daemon has closed the connection")
                for frame in self._decoder.feed(data):
                    self._on_message(decode(frame), frame.stream, frame.seq)

    def _on_message(self, message: Message, stream_id: int, seq: int) -> None:
        stream = self._streams.get(stream_id)
        match message:
            case Welcome():
                self._welcome = True
            case Ping():
                self._pongs.append(seq)  # not now: a frame may be half sent
            case Durable() if stream is not None:
                now_ns = time.perf_counter_ns()
                while stream.sent and stream.sent[0].seq <= seq:
                    sent = stream.sent.popleft()
                    self.outstanding -= sent.entries
                    self.latency_ns.append(now_ns - sent.at_ns)
                    self.latency_entries.append(sent.entries)
            case Held() if stream is not None:
                stream.held.update(message.held)
                stream.answered = message.last
            case Due() if stream is not None:
                stream.due.append(message.entries)
            case Error():
                raise BenchError(f"the daemon says: {message.message}")
            case _:
                pass
