"""Structured logs.

Text for a terminal, JSON lines for machines, on standard error, one line an event. Invariants: an event
repeated by a library or a bug gets one line a minute, with the number of untold ones (``untold``); the first
line imports the library, so that the daemon listens before that; a line that cannot be written is dropped,
and the next one has the number of dropped lines (``left_out``): the daemon does not end for its log, and
hardly ever waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeAlias, cast

from tidegate.plugin.shared.seldom import Seldom, kind_of
from tidegate.plugin.shared.shown import lines, one_line

if TYPE_CHECKING:
    from structlog.typing import EventDict, FilteringBoundLogger, Processor

    Logger: TypeAlias = FilteringBoundLogger

LogFormat = Literal["auto", "human", "json"]


_PIECE = 400
"""Characters, each at most ten bytes if escaped: a file that takes anything takes so much (PIPE_BUF)."""


class _Writer:
    """Writes to a file while it accepts text. left_out: lines since the last accepted one."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._room: select.poll | None = None
        self._torn = False
        # Reentrant: under it the collector may run, and log a task with an unretrieved exception.
        self._lock = threading.RLock()
        self.left_out = 0
        with contextlib.suppress(OSError, ValueError):
            if file is not None:
                descriptor = file.fileno()
                self._room = select.poll()
                self._room.register(descriptor, select.POLLOUT)

    def write(self, text: str) -> None:
        """Write ``text``, or leave it out."""
        with self._lock:
            told = self.left_out
            try:
                taken = self._write(f"\n{text}" if self._torn else text)
            except (OSError, ValueError, RuntimeError):
                # ValueError: the file is closed. RuntimeError: the file is amid a write, and not reentrant
                # itself.
                taken = False
            self.left_out = self.left_out - told if taken else self.left_out + 1

    def _write(self, text: str) -> bool:
        if self._file is None:
            return False
        for begin in range(0, len(text), _PIECE):
            if self._room is not None and not self._room.poll(0):
                return False
            self._torn = True  # until its end is written
            self._file.write(text[begin : begin + _PIECE])
            self._file.flush()
        self._torn = False
        return True

    def isatty(self) -> bool:
        with contextlib.suppress(ValueError):
            return self._file is not None and self._file.isatty()
        return False


class _Lines:
    """The logger for structlog's lines. Structlog's own has a lock that is not reentrant."""

    def __init__(self, out: _Writer) -> None:
        self._out = out

    def msg(self, line: str) -> None:
        self._out.write(f"{line}\n")

    log = debug = info = warning = error = critical = exception = msg


class _LazyLogger:
    """A logger made at its first use. For any thread."""

    def __init__(self, log_format: LogFormat, level: str, out: _Writer) -> None:
        self._log_format = log_format
        self._level = level
        self._out = out

    def __getattr__(self, name: str) -> Any:
        logger = _logger(self._log_format, self._level, self._out)
        for each in ("debug", "info", "warning", "error", "log"):
            setattr(self, each, getattr(logger, each))
        return getattr(logger, name)


def make_logger(log_format: LogFormat, level: str, stream: TextIO | None = None) -> Logger:
    """A logger that writes to ``stream`` (standard error); nothing global is configured."""
    return cast("Logger", _LazyLogger(log_format, level, _Writer(sys.stderr if stream is None else stream)))


def prepare(log: Logger) -> None:
    """Import the modules for the first line; in a thread, so that nobody waits for them."""
    _ = log.info


def _logger(log_format: LogFormat, level: str, out: _Writer) -> Logger:
    import structlog  # noqa: PLC0415

    human = log_format == "human" or (log_format == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _with_left_out(out),
    ]
    last: list[Processor] = (
        [_printable, structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if human
        else [structlog.processors.JSONRenderer()]
    )
    logger: Logger = structlog.wrap_logger(
        _Lines(out),
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )
    return logger


def _with_left_out(out: _Writer) -> Processor:
    def add(_log: object, _method: str, event: EventDict) -> EventDict:
        if out.left_out:
            event["left_out"] = out.left_out
        return event

    return add


def _printable(_log: object, _method: str, event: EventDict) -> EventDict:
    """Escape the values, which may be clients' names; JSON escapes by itself."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = lines(value) if key == "exception" else one_line(value)
    return event


class _Forward(logging.Handler):
    """Passes the standard library's log records to a structured logger."""

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log
        self._seldom = Seldom()

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        more = self._seldom.more((record.name, record.msg, kind_of(error)))
        if more is not None:
            self._log.log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info, **more
            )


def forward_standard_logging(log: Logger) -> None:
    """Send warnings and worse of the index and the libraries to ``log``."""
    logging.basicConfig(handlers=[_Forward(log)], level=logging.WARNING, force=True)


def log_bugs(log: Logger) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An event loop's exception handler that sends uncaught exceptions to ``log``."""
    seldom = Seldom()

    def on_bug(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # Without an exception the text is the kind; with one the text may name an object by its address.
        more = seldom.more(context["message"] if error is None else kind_of(error))
        if more is not None:
            log.error(context["message"], exc_info=error, **more)

    return on_bug
