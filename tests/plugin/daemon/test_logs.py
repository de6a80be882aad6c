"""Logs: what the libraries log comes out in the same form, with its traceback."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tidegate.plugin.daemon.logs import LogFormat, forward_standard_logging, make_logger


@pytest.fixture(autouse=True)
def _standard_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_forwarded_exception_keeps_its_traceback(log_format: LogFormat) -> None:
    out = io.StringIO()
    forward_standard_logging(make_logger(log_format, "info", out))
    try:
        raise ValueError("the cause")
    except ValueError:
        logging.getLogger("some.library").exception("it went wrong")
    assert "it went wrong" in out.getvalue()
    assert "some.library" in out.getvalue()
    assert "test_logs.py" in out.getvalue()
    assert "ValueError: the cause" in out.getvalue()


def test_a_forwarded_line_without_an_exception_has_none() -> None:
    out = io.StringIO()
    forward_standard_logging(make_logger("json", "info", out))
    logging.getLogger("some.library").warning("count is %d", 3)
    logging.getLogger("some.library").info("not worth a line")
    (line,) = out.getvalue().splitlines()
    assert json.loads(line).keys() == {"event", "level", "logger", "timestamp"}
    assert json.loads(line)["event"] == "count is 3"
