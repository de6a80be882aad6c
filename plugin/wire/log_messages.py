"""The messages about index logs, which a broker keeps for the daemon in BookKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from tidegate.plugin.wire.frames import FrameType


class LogOp(IntEnum):
    """The daemon's requests to a home of index logs."""

    CREATE = 1
    APPEND = 2
    OPEN = 3
    READ = 4
    CLOSE = 5
    DELETE = 6
    POINT = 7


class LogCode(IntEnum):
    """The result of such a request."""

    OK = 0
    FENCED = 1
    NO_LEDGER = 2
    STALE = 3
    AWAY = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class LogRequest:
    """A request about the index log; the broker does not read the log's contents.

    first, last: the entries that READ asks for. old, new: the pointers of POINT. entry: the bytes for APPEND.
    """

    type: ClassVar[FrameType] = FrameType.LOG_REQUEST
    op: LogOp
    ledger_id: int = -1
    first: int = -1
    last: int = -1
    old: str = ""
    new: str = ""
    entry: bytes = b""


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """The answer to the LOG_REQUEST of the same seq.

    number: the ledger's id for CREATE, the entry's number for APPEND, the last entry's for OPEN.
    """

    type: ClassVar[FrameType] = FrameType.LOG_ANSWER
    code: LogCode
    number: int = -1
    message: str = ""
    entries: tuple[bytes, ...] = ()
