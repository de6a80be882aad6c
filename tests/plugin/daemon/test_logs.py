"""Logs: what the libraries log comes out in the same form, with its traceback."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import io
import json
import logging
import os
from collections.abc import Iterator

import pytest

from tidegate.plugin.daemon.logs import LogFormat, forward_standard_logging, log_bugs, make_logger


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


def test_what_a_library_says_over_and_over_is_one_line() -> None:
    out = io.StringIO()
    forward_standard_logging(make_logger("json", "info", out))
    for number in range(100):
        try:
            raise ValueError(f"the cause {number}")
        except ValueError:
            logging.getLogger("some.library").exception("request from %s", number)
    logging.getLogger("some.library").warning("something else")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == [
        "request from 0",
        "something else",
    ]


async def test_a_bug_that_is_met_over_and_over_is_one_line() -> None:
    out = io.StringIO()
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(log_bugs(make_logger("json", "info", out)))
    done = loop.create_future()

    def buggy() -> None:
        raise ValueError("a bug")

    def other() -> None:
        loop.call_soon(done.set_result, None)
        raise ValueError("another bug")

    try:
        for _ in range(100):
            loop.call_soon(buggy)
        loop.call_soon(other)
        await done
    finally:
        loop.set_exception_handler(before)
    first, second = (json.loads(line)["exception"] for line in out.getvalue().splitlines())
    assert "ValueError: a bug" in first
    assert "ValueError: another bug" in second


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_line_that_cannot_be_written_is_left_out(log_format: LogFormat) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        make_logger(log_format, "info", full).info("nobody reads it")
        with pytest.raises(OSError, match="No space left"):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    make_logger(log_format, "info", full).info("to a file that is closed")


def test_what_is_told_while_a_line_is_written_waits_for_nothing() -> None:
    """The collector may run anywhere, and has a task told that nobody has waited for."""

    class Telling(io.StringIO):
        def write(self, text: str) -> int:
            if "first" in text:
                log.info("told meanwhile")
            return super().write(text)

    out = Telling()
    log = make_logger("json", "info", out)
    log.info("first")
    lines = filter(None, out.getvalue().splitlines())
    assert [json.loads(line)["event"] for line in lines] == ["told meanwhile", "first"]


def test_a_line_that_an_error_has_torn_takes_no_other_along() -> None:
    class FullOnce(io.StringIO):
        pieces = 0

        def write(self, text: str) -> int:
            self.pieces += 1
            if self.pieces == 2:
                raise OSError(errno.ENOSPC, "no room")
            return super().write(text)

    out = FullOnce()
    log = make_logger("json", "info", out)
    log.info("long", text="x" * 1_000)
    log.info("next")
    _, last = out.getvalue().splitlines()
    assert (json.loads(last)["event"], json.loads(last)["left_out"]) == ("next", 1)


def test_a_reader_who_does_not_read_keeps_nobody_waiting_and_is_told_what_was_left_out() -> None:
    reading, writing = os.pipe()
    # A pipe that takes no more blocks whoever writes.
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 16_384)
    with os.fdopen(reading, encoding="utf-8") as reader, os.fdopen(writing, "w", encoding="utf-8") as out:
        log = make_logger("json", "info", out)
        for number in range(100):
            log.info("a line", number=number, text="x" * 300)
        log.info("a long line", text="y" * 30_000)
        read = os.read(reading, 65_536).decode()
        log.info("the reader is back")
        out.close()
        *lines, torn_or_last, last = (read + reader.read()).splitlines()
    told = [json.loads(line)["number"] for line in lines]
    assert told == list(range(len(told)))
    assert 0 < len(told) < 50
    back = json.loads(last)
    # The line at which it was full is either whole, or torn and left out.
    whole = len(told) + torn_or_last.endswith("}")
    assert (back["event"], back["left_out"]) == ("the reader is back", 101 - whole)
