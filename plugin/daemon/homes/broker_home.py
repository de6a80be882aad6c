"""The home of index logs at a broker: BookKeeper, reached through its shim.

Invariants: each request is answered once, by the broker or with an error that it is away; requests of an
ended stream are not sent; an answer without a request is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakSet

from tidegate.index.log import (
    AwayError,
    FencedError,
    HomeError,
    NoLedgerError,
    RefusedError,
    StalePointerError,
)
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest

BOOKKEEPER = "bookkeeper"
ANSWER_SECONDS = 10.0
_ERRORS: dict[LogCode, type[HomeError]] = {
    LogCode.FENCED: FencedError,
    LogCode.NO_LEDGER: NoLedgerError,
    LogCode.STALE: StalePointerError,
    LogCode.AWAY: AwayError,
    LogCode.REFUSED: RefusedError,
}


class LogRequests:
    """The requests that one connection has not answered yet."""

    def __init__(self, send: Callable[[LogRequest, int, int], None], loop: asyncio.AbstractEventLoop) -> None:
        self._send = send
        self._loop = loop
        self._waiting: dict[int, tuple[int, asyncio.Future[LogAnswer]]] = {}
        self._homes: dict[int, WeakSet[BrokerHome]] = {}
        self._last_seq = 0
        self._closed = False

    def serve(self, stream_id: int, home: BrokerHome) -> None:
        """Ask on behalf of `home` until a stream of this number ends: its own, or an earlier one."""
        self._homes.setdefault(stream_id, WeakSet()).add(home)

    async def ask(self, stream_id: int, request: LogRequest) -> LogAnswer:
        """The answer to `request`. Raises HomeError."""
        if self._closed:
            raise RefusedError("the broker is gone")
        self._last_seq += 1
        seq = self._last_seq
        answer: asyncio.Future[LogAnswer] = self._loop.create_future()
        self._waiting[seq] = stream_id, answer
        self._send(request, stream_id, seq)
        try:
            # Not `wait_for`: until Python 3.12 it turns a cancellation into an answer that comes with it.
            async with asyncio.timeout(ANSWER_SECONDS):
                return await answer
        except TimeoutError as error:
            raise AwayError(f"{request.op.name} was not answered within {ANSWER_SECONDS:g} s") from error
        finally:
            self._waiting.pop(seq, None)

    def answered(self, stream_id: int, seq: int, answer: LogAnswer) -> None:
        """Note the broker's answer."""
        asked = self._waiting.get(seq)
        if asked is not None and asked[0] == stream_id and not asked[1].done():
            asked[1].set_result(answer)

    def end_stream(self, stream_id: int) -> None:
        """End the requests of a stream, and send no more of them."""
        for home in self._homes.pop(stream_id, ()):
            home.over = True
        for asked_id, answer in list(self._waiting.values()):
            if asked_id == stream_id and not answer.done():
                answer.set_exception(RefusedError("the stream is over"))

    def close(self) -> None:
        """End all requests: the broker is gone."""
        self._closed = True
        for stream_id in {stream_id for stream_id, _ in self._waiting.values()}:
            self.end_stream(stream_id)


class BrokerHome:
    """`Home` on behalf of one stream."""

    kind = BOOKKEEPER
    fences = True
    interval_ms = 0
    tail_entries_max = 1 << 12

    def __init__(self, requests: LogRequests, stream_id: int) -> None:
        self._requests = requests
        self._stream_id = stream_id
        self.over = False
        requests.serve(stream_id, self)

    async def create(self) -> int:
        """See `Home`."""
        return (await self._ask(LogRequest(LogOp.CREATE))).number

    async def append(self, ledger_id: int, entry: bytes) -> int:
        """See `Home`."""
        return (await self._ask(LogRequest(LogOp.APPEND, ledger_id, entry=entry))).number

    async def open(self, ledger_id: int) -> int:
        """See `Home`."""
        return (await self._ask(LogRequest(LogOp.OPEN, ledger_id))).number

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """See `Home`."""
        answer = await self._ask(LogRequest(LogOp.READ, ledger_id, first, last))
        if not answer.entries:
            raise NoLedgerError(f"ledger {ledger_id} has no entry {first}")
        return list(answer.entries)

    async def close(self, ledger_id: int) -> None:
        """See `Home`."""
        await self._ask(LogRequest(LogOp.CLOSE, ledger_id))

    async def delete(self, ledger_id: int) -> None:
        """See `Home`."""
        await self._ask(LogRequest(LogOp.DELETE, ledger_id))

    async def point(self, old: str, new: str) -> None:
        """See `Home`."""
        await self._ask(LogRequest(LogOp.POINT, old=old, new=new))

    async def _ask(self, request: LogRequest) -> LogAnswer:
        if self.over:
            raise RefusedError("the stream is over")
        answer = await self._requests.ask(self._stream_id, request)
        error = _ERRORS.get(answer.code)
        if error is not None:
            raise error(answer.message)
        return answer
