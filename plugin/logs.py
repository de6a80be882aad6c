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
