"""Structured logs.

For people on a terminal, JSON lines for machines. To standard error, one line an event.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO

import structlog

LogFormat = Literal["auto", "human", "json"]
Logger = structlog.typing.FilteringBoundLogger


def make_logger(log_format: LogFormat, level: str, stream: TextIO | None = None) -> Logger:
    """A logger that writes to ``stream`` (standard error); nothing global is configured."""
    out = sys.stderr if stream is None else stream
    human = log_format == "human" or (log_format == "auto" and out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=out.isatty()) if human else structlog.processors.JSONRenderer()
    )
    logger: Logger = structlog.wrap_logger(
        structlog.WriteLogger(out),
        processors=[*shared, last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
    )
    return logger


class _Forward(logging.Handler):
    """Hands records of the standard library's logging to a structured logger."""

    def __init__(self, log: Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def forward_standard_logging(log: Logger) -> None:
    """Let what the index and the libraries log (warnings and worse) come out of ``log``."""
    logging.basicConfig(handlers=[_Forward(log)], level=logging.WARNING, force=True)
