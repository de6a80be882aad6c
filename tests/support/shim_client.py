"""A broker's side of the protocol in Python: the shim on the wire, for tests and benches.

A `ShimClient` is one connection, a `ClientStream` one subscription on it. Frames are sent in the order of the
calls; a reader task sorts incoming ones into the streams. Nothing is resent unless a test does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.log_answers import answered_by
from tidegate.index.entries.entry import Entries
from tidegate.index.log.memory_home import MemoryHome, World
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.daemon.session import Change
from tidegate.plugin.errors import ErrorCode
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.log_messages import LogRequest
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Behind,
    Cancel,
    Cancelled,
    Clear,
    Close,
    Credit,
    Due,
    Durable,
    Error,
    Held,
    Hello,
    MarkDelete,
    Message,
    Move,
    Open,
    Pace,
    Paced,
    Peek,
    Peeked,
    Ping,
    Pong,
    Reschedule,
    Rescheduled,
    Role,
    Unack,
    Unheld,
    Welcome,
)

TIMEOUT_S = 60.0
READ_BYTES = 256 * 1024
INCARNATION = bytes(range(16))
NO_POSITION = (-1, -1)
GENERATION = 0x5EA1


class DaemonError(Exception):
    """The daemon sent ERROR, for the stream or for the connection."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{ErrorCode(code).name}: {message}")
        self.code = ErrorCode(code)
        self.message = message


class ClientStream:
    """One subscription's stream. `held` and `acknowledged` are the answer to OPEN."""

    def __init__(self, client: ShimClient, stream_id: int, credit: int) -> None:
        self.client = client
        self.stream_id = stream_id
        self.held = PositionSet()
        self.acknowledged = PositionSet()
        self.held_frames = 0
        self.unheld = PositionSet()
        self.durable_seq = 0
        self.due: list[Entries] = []
        self.due_entries = 0
        self.credit_left = credit
        self.answered = False
        self.closed = False
        self.error: DaemonError | None = None
        self.seq = 0
        self.cancels: list[tuple[int, Cancel]] = []
        self.behind: list[int] = []
        self.paces: list[tuple[int, Pace]] = []
        self.on_pace: Callable[[Pace], Paced] | None = None  # None: nothing is answered
        self.on_cancel: Callable[[Cancel], Cancelled] | None = None  # None: nothing is answered
        self.peeks: list[Peek] = []
        # None: nothing is answered
        self.on_peek: Callable[[Peek], Peeked] | None = lambda _: Peeked(PositionSet(), PositionSet())
        self.reschedules: list[tuple[int, Reschedule]] = []
        self.on_reschedule: Callable[[Reschedule], Rescheduled] | None = None  # None: nothing is answered

    def change(self, change: Change) -> int:
        """Send a counted frame; returns its seq."""
        self.seq += 1
        self.client.send(change, self.stream_id, self.seq)
        return self.seq

    def add(self, entries: Entries, *, near: bool = False) -> int:
        return self.change(Add(entries, near))

    def move(self, entries: Entries, *, near: bool = False) -> int:
        return self.change(Move(entries, near))

    def ack(self, positions: PositionSet) -> int:
        return self.change(Ack(positions))

    def unack(self, positions: PositionSet) -> int:
        return self.change(Unack(positions))

    def mark_delete(self, ledger_id: int, entry_id: int) -> int:
        return self.change(MarkDelete((ledger_id, entry_id)))

    def clear(self) -> int:
        return self.change(Clear())

    def give_credit(self, more: int) -> None:
        self.credit_left += more
        self.client.send(Credit(more), self.stream_id)

    async def opened(self) -> None:
        """Wait for the last HELD. Raises `DaemonError` if OPEN is refused."""
        await self.until(lambda: self.answered)

    async def durable(self, seq: int | None = None) -> None:
        """Wait until `seq` (the last one sent) is durable."""
        wanted = self.seq if seq is None else seq
        await self.until(lambda: self.durable_seq >= wanted)

    async def take_due(self, count: int) -> Entries:
        """Wait for `count` entries or more in DUE, and take them all."""
        await self.until(lambda: self.due_entries >= count)
        taken, self.due, self.due_entries = Entries.concat(self.due), [], 0
        return taken

    async def close(self) -> None:
        """CLOSE, and wait for the answer."""
        self.change(Close())
        await self.until(lambda: self.closed)

    async def ended(self) -> DaemonError:
        """Wait for the ERROR that ends the stream."""
        await self.client.until(lambda: self.error is not None)
        assert self.error is not None
        return self.error

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a frame's effect. Raises `DaemonError` if the stream ends instead."""
        await self.client.until(lambda: happened() or self.error is not None)
        if self.error is not None and not happened():
            raise self.error

    def on_message(self, message: Message, seq: int) -> None:
        match message:
            case Held():
                self.held.update(message.held)
                self.acknowledged.update(message.acknowledged)
                self.held_frames += 1
                self.answered |= message.last
            case Durable():
                assert seq > self.durable_seq, "DURABLE never goes back"
                self.durable_seq = seq
            case Due():
                self.due.append(message.entries)
                self.due_entries += len(message.entries)
                self.credit_left -= len(message.entries)
                assert self.credit_left >= 0, "the daemon sent more than there was credit for"
            case Unheld():
                self.unheld.update(message.positions)
            case Close():
                self.closed = True
            case Cancel():
                self.cancels.append((seq, message))
                if self.on_cancel is not None:
                    self.client.send(self.on_cancel(message), self.stream_id, seq)
            case Reschedule():
                self.reschedules.append((seq, message))
                if self.on_reschedule is not None:
                    self.client.send(self.on_reschedule(message), self.stream_id, seq)
            case Peek():
                self.peeks.append(message)
                if self.on_peek is not None:
                    self.client.send(self.on_peek(message), self.stream_id, seq)
            case Behind():
                self.behind.append(message.entries)
            case Pace():
                self.paces.append((seq, message))
                if self.on_pace is not None:
                    self.client.send(self.on_pace(message), self.stream_id, seq)
            case Error():
                self.error = DaemonError(message.code, message.message)
            case LogRequest():
                self.client.answer_log(self.stream_id, seq, message)
            case _:
                raise AssertionError(f"{message.type.name} on a stream")


class ShimClient:
    """One connection of a broker; `connect` sends HELLO and waits for WELCOME."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams: dict[int, ClientStream] = {}
        self.received: list[tuple[Message, int]] = []  # on stream 0, but for PING
        self.welcome: Welcome | None = None
        self.error: DaemonError | None = None
        self.closed = False
        self.sent_bytes = 0
        self.received_bytes = 0
        self.logs: MemoryHome | None = None
        self.log_home = "bookkeeper"
        self.log_silent = False  # True: the daemon's requests about index logs get no answer
        self.silent = False  # True: no PING and no PONG, as a hung broker
        self._reader = reader
        self._writer = writer
        self._answering: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()
        self._next_stream = 1
        self._sent_at = asyncio.get_running_loop().time()
        self._task = asyncio.create_task(self._read())
        self._heartbeat: asyncio.Task[None] | None = None

    @classmethod
    async def raw(cls, path: Path) -> Self:
        """Connected, without a greeting."""
        return cls(*await asyncio.open_unix_connection(str(path)))

    @classmethod
    async def connect(
        cls, path: Path, name: str = "broker-1", role: Role = Role.BROKER, *, version: int = VERSION_MAX
    ) -> Self:
        client = await cls.raw(path)
        client.send(Hello(VERSION_MIN, version, role, name, "pulsar 4.0.8"))
        await client.until(lambda: client.welcome is not None)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    def send(self, message: Message, stream_id: int = 0, seq: int = 0) -> None:
        self.send_bytes(encode(message, stream_id, seq))

    def send_bytes(self, data: bytes) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        self._writer.write(data)
        self.sent_bytes += len(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def begin_open(
        self,
        topic: str,
        subscription: str = "sub",
        *,
        incarnation: bytes = INCARNATION,
        epoch: int = 1,
        generation: int = GENERATION,
        horizon_ms: int = 0,
        credit: int = 20_000,
        mark_delete: tuple[int, int] = NO_POSITION,
        in_flight: PositionSet | None = None,
        claims: tuple[int, ...] = (),
        end: tuple[int, int] = NO_POSITION,
        stream_id: int | None = None,
    ) -> ClientStream:
        """Send OPEN and do not wait for the answer.

        A question of the daemon may come in one read with the answer: set its answer now, then wait for
        `ClientStream.opened`.
        """
        if stream_id is None:
            stream_id, self._next_stream = self._next_stream, self._next_stream + 1
        stream = self.streams[stream_id] = ClientStream(self, stream_id, credit)
        self.send(
            Open(
                incarnation,
                epoch,
                generation,
                horizon_ms,
                credit,
                mark_delete,
                topic,
                subscription,
                PositionSet() if in_flight is None else in_flight,
                "" if self.logs is None else self.log_home,
                "" if self.logs is None else self.logs.world.pointer,
                claims,
                end,
            ),
            stream_id,
        )
        return stream

    async def open(
        self,
        topic: str,
        subscription: str = "sub",
        *,
        incarnation: bytes = INCARNATION,
        epoch: int = 1,
        generation: int = GENERATION,
        horizon_ms: int = 0,
        credit: int = 20_000,
        mark_delete: tuple[int, int] = NO_POSITION,
        in_flight: PositionSet | None = None,
        claims: tuple[int, ...] = (),
        end: tuple[int, int] = NO_POSITION,
    ) -> ClientStream:
        """OPEN, and wait for the last HELD. Raises `DaemonError` if it is refused."""
        stream = self.begin_open(
            topic,
            subscription,
            incarnation=incarnation,
            epoch=epoch,
            generation=generation,
            horizon_ms=horizon_ms,
            credit=credit,
            mark_delete=mark_delete,
            in_flight=in_flight,
            claims=claims,
            end=end,
        )
        await stream.opened()
        return stream

    def offer_logs(self, world: World) -> None:
        """Own the one subscription of `world`, with its index log, from the next OPEN on."""
        self.logs = world.new_owner()

    def answer_log(self, stream_id: int, seq: int, request: LogRequest) -> None:
        """Execute the daemon's request, as the shim does."""
        if self.log_silent:
            return

        async def answer() -> None:
            assert self.logs is not None
            answered = await answered_by(self.logs, request)
            self.send(answered, stream_id, seq)

        self.spawn(answer())

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run it beside all else."""
        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def until(self, happened: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Wait for a frame's effect.

        Raises `DaemonError` if the connection ends instead.
        """
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(lambda: happened() or self.closed)
        if not happened():
            raise self.error or DaemonError(
                ErrorCode.SHUTTING_DOWN, "the connection was closed without a word"
            )

    async def ended(self) -> DaemonError | None:
        """Wait until the daemon has closed the connection; returns its ERROR."""
        async with asyncio.timeout(TIMEOUT_S), self._changed:
            await self._changed.wait_for(lambda: self.closed)
        return self.error

    async def disconnect(self) -> None:
        """Close without a word, as a killed broker does."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await self._task

    async def _read(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := await self._reader.read(READ_BYTES):
                self.received_bytes += len(data)
                for frame in decoder.feed(data):
                    self._on_message(decode(frame), frame.stream, frame.seq)
                async with self._changed:
                    self._changed.notify_all()
        except ConnectionError:
            pass
        finally:
            self.closed = True
            async with self._changed:
                self._changed.notify_all()

    async def _beat(self, heartbeat_s: float) -> None:
        while not self.closed:
            await asyncio.sleep(heartbeat_s / 4)
            if not self.silent and asyncio.get_running_loop().time() - self._sent_at >= heartbeat_s / 2:
                self.send(Ping())

    def _on_message(self, message: Message, stream_id: int, seq: int) -> None:
        if stream_id:
            self.streams[stream_id].on_message(message, seq)
            return
        match message:
            case Ping():
                self.received.append((message, seq))
                if not self.silent:
                    self.send(Pong(), 0, seq)
            case Welcome():
                self.welcome = message
                self._heartbeat = asyncio.create_task(self._beat(message.heartbeat_ms / 1_000))
            case Error():
                self.error = DaemonError(message.code, message.message)
            case Pong() if seq == 0:
                pass  # to the heartbeat
            case _:
                self.received.append((message, seq))


def entries(
    count: int, deliver_at_ms: int, *, ledger_id: int = 1, first_entry: int = 0, step_ms: int = 0
) -> Entries:
    """`count` entries of one ledger, `step_ms` apart."""
    return Entries.of((deliver_at_ms + i * step_ms, ledger_id, first_entry + i) for i in range(count))


def random_incarnation() -> bytes:
    """Another life of a subscription."""
    return secrets.token_bytes(16)
