"""The answers of a broker that keeps index logs in memory."""

from __future__ import annotations

from tidegate.index.log.home import (
    AwayError,
    FencedError,
    HomeError,
    NoLedgerError,
    RefusedError,
    StalePointerError,
)
from tidegate.index.log.memory_home import MemoryHome
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest

_CODES = {
    FencedError: LogCode.FENCED,
    NoLedgerError: LogCode.NO_LEDGER,
    StalePointerError: LogCode.STALE,
    AwayError: LogCode.AWAY,
    RefusedError: LogCode.REFUSED,
}


async def answered_by(home: MemoryHome, request: LogRequest) -> LogAnswer:
    """Do what is asked."""
    number = -1
    entries: list[bytes] = []
    try:
        match request.op:
            case LogOp.CREATE:
                number = await home.create()
            case LogOp.APPEND:
                number = await home.append(request.ledger_id, bytes(request.entry))
            case LogOp.OPEN:
                number = await home.open(request.ledger_id)
            case LogOp.READ:
                entries = await home.read(request.ledger_id, request.first, request.last)
            case LogOp.CLOSE:
                await home.close(request.ledger_id)
            case LogOp.DELETE:
                await home.delete(request.ledger_id)
            case LogOp.POINT:
                await home.point(request.old, request.new)
    except HomeError as error:
        return LogAnswer(_CODES[type(error)], message=str(error))
    return LogAnswer(LogCode.OK, number, entries=tuple(entries))
