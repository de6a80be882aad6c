"""A Unix socket between a broker's shim and a daemon: two byte streams that arrive late, in pieces, or not at
all.

The shim's bytes lie in a real socket pair until the daemon reads it, because the daemon's connection keeps a
second descriptor and reads a killed broker's last bytes. The daemon's bytes lie in a buffer here. Both have a
bounded capacity, so that a write may be taken in part and the rest dies with the writer: this tears frames.
Invariant: bytes come in order and without gaps, up to a cut.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Protocol

from tests.sim.kernel import Event, Kernel, Process, Violation
from tests.sim.loop import VirtualLoop
from tidegate.plugin.daemon.connection import Connection

_NEXT_PIECE_NS = 50_000
_LOW_WATER = 4  # of the high one; as in asyncio


class ClientEnd(Protocol):
    """The shim's side of a connection."""

    def on_bytes(self, data: bytes) -> None:
        """The daemon has sent this."""
        ...

    def on_lost(self) -> None:
        """The connection is over; called once."""
        ...


class WireOptions:
    """A connection's behaviour: bytes it takes, ns until they are read, bytes read at once (0: all)."""

    __slots__ = ("capacity", "latency_ns", "piece_bytes")

    def __init__(self, capacity: int, latency_ns: int, piece_bytes: int) -> None:
        self.capacity = capacity
        self.latency_ns = latency_ns
        self.piece_bytes = piece_bytes


class Wire:
    """One connection, both ends."""

    def __init__(
        self, kernel: Kernel, client: ClientEnd, broker: Process, loop: VirtualLoop, options: WireOptions
    ) -> None:
        self.kernel = kernel
        self.options = options
        self.client = client
        self.broker = broker
        self.loop = loop
        self.transport = DaemonTransport(self)
        self.connection: Connection | None = None
        self.client_open = True
        self.daemon_open = True
        self._client_socket, self.daemon_socket = socket.socketpair()
        self._client_socket.setblocking(False)
        self.daemon_socket.setblocking(False)
        self.written_bytes = 0  # by the shim, and of these taken by the socket
        self.accepted_bytes = 0
        self.was_cut = False
        self.ended_by_client = False
        self._unsent = bytearray()
        self._in_socket = 0
        self._to_client = bytearray()
        self._client_read: Event | None = None
        self._daemon_read: Event | None = None
        self._lost_told = False

    @property
    def is_open(self) -> bool:
        """True if neither end has been closed, or is being closed."""
        return self.client_open and self.daemon_open and not self.transport.is_closing()

    @property
    def has_unread(self) -> bool:
        """True if the daemon has not read everything from the shim."""
        return bool(self._in_socket or self._unsent)

    # ---- the shim's side

    def write(self, data: bytes) -> None:
        if self.client_open:
            self.written_bytes += len(data)
            self._unsent += data
            self._push()

    def close_client(self) -> None:
        """The shim closes, or its process is dead. The socket's bytes can still be read."""
        if not self.client_open:
            return
        self.client_open = False
        self.ended_by_client = self.daemon_open and not self.transport.is_closing()
        self._unsent.clear()
        self._to_client.clear()
        self._client_socket.close()
        if self.daemon_open:
            self._wake_daemon()

    def release(self) -> None:
        """Close everything: the run is over."""
        self.kill_daemon()
        self._client_socket.close()

    def _push(self) -> None:
        room = self.options.capacity - self._in_socket
        if self._unsent and room > 0 and self.client_open and self.daemon_open:
            try:
                sent = self._client_socket.send(self._unsent[:room])
            except BlockingIOError:
                return  # full, with many small pieces: the daemon reads first
            del self._unsent[:sent]
            self._in_socket += sent
            self.accepted_bytes += sent
            self._wake_daemon()

    def _wake_client(self, within_ns: int | None = None) -> None:
        if self._client_read is None and self.client_open:
            latency_ns = self.kernel.between_ns(
                0, self.options.latency_ns if within_ns is None else within_ns
            )
            self._client_read = self.kernel.after(latency_ns, self.broker, self._read_client)

    def _read_client(self) -> None:
        self._client_read = None
        if not self.client_open:
            return
        if self._to_client:
            piece = bytes(self._to_client[: self._piece(len(self._to_client))])
            del self._to_client[: len(piece)]
            if self.daemon_open:
                self.transport.client_has_read()
            self.client.on_bytes(piece)
            if self._to_client or not self.daemon_open:
                self._wake_client(_NEXT_PIECE_NS)
        elif not self.daemon_open and not self._lost_told:
            self._lost_told = True
            self.client.on_lost()

    # ---- the daemon's side

    def client_room(self) -> int:
        """Bytes that the socket takes from the daemon now."""
        return self.options.capacity - len(self._to_client)

    def to_client(self, data: bytes) -> None:
        """The socket has taken this from the daemon."""
        self._to_client += data
        self._wake_client()

    def close_daemon(self) -> None:
        """The daemon closes, or its process is dead. The socket's bytes can still be read."""
        if not self.daemon_open:
            return
        self.daemon_open = False
        self.daemon_socket.close()
        self._wake_client()

    def kill_daemon(self) -> None:
        """The daemon's process is dead: all its descriptors are closed."""
        connection = self.connection
        if connection is not None and connection._peer is not None:
            connection._peer.close()
            connection._peer = None
        self.close_daemon()

    def _wake_daemon(self, within_ns: int | None = None) -> None:
        if self._daemon_read is None and self.daemon_open:
            latency_ns = self.kernel.between_ns(
                0, self.options.latency_ns if within_ns is None else within_ns
            )
            self._daemon_read = self.kernel.after(latency_ns, None, self._ready_daemon)

    def _ready_daemon(self) -> None:
        self._daemon_read = None
        if self.daemon_open and not self.transport.reading_paused:
            self.loop.call_soon(self._read_daemon)

    def resume_reading(self) -> None:
        self._wake_daemon()

    def _read_daemon(self) -> None:
        transport, connection = self.transport, self.connection
        if not self.daemon_open or transport.is_closing() or transport.reading_paused or connection is None:
            return
        if self._in_socket:
            buffer = connection.get_buffer(-1)
            wanted = min(self._piece(self._in_socket), len(buffer))
            try:
                count = self.daemon_socket.recv_into(buffer, wanted)
            except BlockingIOError:
                self._in_socket = 0  # the connection has taken it through its second descriptor
                self._push()
                return
            self._in_socket -= count
            connection.buffer_updated(count)
            if self._in_socket or self._unsent or not self.client_open:
                self._wake_daemon(_NEXT_PIECE_NS)
            self._push()
        elif not self.client_open:
            connection.eof_received()
            transport.close()

    def _piece(self, available: int) -> int:
        most = self.options.piece_bytes
        return available if most == 0 else min(available, self.kernel.random.randint(1, most))

    # ---- a fault

    def cut(self) -> None:
        """Both ends lose the connection, and any part of the bytes on their way."""
        if not (self.client_open and self.daemon_open):
            return
        luck = self.kernel.random
        self.was_cut = True
        if self._in_socket:
            try:
                on_the_way = self.daemon_socket.recv(self._in_socket)
            except BlockingIOError:
                on_the_way = b""
            kept = on_the_way[: luck.randint(0, len(on_the_way))]
            if kept:
                self._client_socket.send(kept)
            self._in_socket = len(kept)
        del self._to_client[luck.randint(0, len(self._to_client)) :]
        self._unsent.clear()
        self._client_socket.close()
        self.client_open = False
        if not self._lost_told:
            self._lost_told = True
            self.kernel.after(0, self.broker, self.client.on_lost)
        self._wake_daemon()


class DaemonTransport(asyncio.Transport):
    """The socket of a `Connection`."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.reading_paused = False
        self._wire = wire
        self._buffer = bytearray()
        self._high = 65_536
        self._writing_paused = False
        self._closing = False
        self._lost = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._wire.daemon_socket if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None, "the daemon names the limit"
        self._high = high

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._lost:
            return
        if not self._wire.client_open:
            self._force_close(BrokenPipeError())
            return
        self._buffer += data
        self._push()
        if len(self._buffer) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol().pause_writing()
            if not (self.reading_paused or self._closing):
                raise Violation("a connection is read on though its peer takes no answers")

    def pause_reading(self) -> None:
        self.reading_paused = True

    def resume_reading(self) -> None:
        if self.reading_paused:
            self.reading_paused = False
            self._wire.resume_reading()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._wire.loop.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        self._force_close(None)

    def client_has_read(self) -> None:
        """The socket has room again."""
        self._wire.loop.call_soon(self._writable)

    def _writable(self) -> None:
        if self._lost or not self._wire.daemon_open:
            return
        if self._buffer and not self._wire.client_open:
            self._force_close(BrokenPipeError())
            return
        self._push()
        if self._writing_paused and len(self._buffer) <= self._high // _LOW_WATER:
            self._writing_paused = False
            self._protocol().resume_writing()
        if self._closing and not self._buffer:
            self._connection_lost(None)

    def _push(self) -> None:
        room = self._wire.client_room()
        if self._buffer and room > 0:
            self._wire.to_client(bytes(self._buffer[:room]))
            del self._buffer[:room]

    def _force_close(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._buffer.clear()
            self._wire.loop.call_soon(self._tell_lost, error)

    def _connection_lost(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._tell_lost(error)

    def _tell_lost(self, error: Exception | None) -> None:
        self._protocol().connection_lost(error)
        self._wire.close_daemon()

    def _protocol(self) -> Connection:
        connection = self._wire.connection
        assert connection is not None
        return connection
