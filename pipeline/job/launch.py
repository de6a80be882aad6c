"""Starts a job as its own process, shows its progress, and always ends it.

Invariants: Spark never runs in this process; when ``launch`` returns or raises, the job's process group is
gone; if this process dies, the job notices and ends. Spark logs to a file, kept only after an error that no
line explains.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.parts import check_parts
from tidegate.pipeline.job.request import ErrorEvent, NoteEvent, Request, ResultEvent, StageEvent, parse_event
from tidegate.pipeline.job.view import View
from tidegate.plugin.shared.shown import without_passwords

STOP_S = 12.0
_LOG = "job.log"
_ROOM_BYTES = 1 << 20
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READ_BYTES = 1 << 16
_POLL_S = 0.5


class JobError(PipelineError):
    """The job ended without a result."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def launch(request: Request, view: View) -> tuple[dict[str, Any], int]:
    """Run a job; (its result, the exit code). Raises ``PipelineError``."""
    check_parts(os.environ)
    _check_room(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix="tidegate-job-", ignore_cleanup_errors=True) as folder:
        with _signals_noticed() as noticed:
            ended = _watched(request, view, Path(folder), noticed)
        if isinstance(ended, ResultEvent):
            return ended.result, ended.exit_code
        if ended.expected:
            raise JobError(ended.message, ended.exit_code)
        raise JobError(f"{ended.message}; Spark's log: {_kept(Path(folder) / _LOG)}", ended.exit_code)


def _check_room(temporary: Path) -> None:
    """Without room for its first temporary file Spark waits for ever."""
    try:
        with tempfile.TemporaryFile(dir=temporary) as probe:
            probe.write(bytes(_ROOM_BYTES))
            probe.flush()
    except OSError as error:
        raise PipelineError(
            f"cannot write temporary files to {temporary}: {error.strerror or error}; free some space there, "
            "or choose another place with TMPDIR=DIR"
        ) from error


def _watched(request: Request, view: View, folder: Path, noticed: list[int]) -> ResultEvent | ErrorEvent:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as events, (folder / _LOG).open("ab") as output:
        try:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "tidegate.pipeline.job.runner", str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_environment(request, folder),
                pass_fds=[writing],
                # A group of its own, to end as one; Ctrl-C reaches this process alone.
                start_new_session=True,
            )
        finally:
            os.close(writing)
        try:
            _give(process, request)
            for event in _events(events.fileno(), noticed):
                match event:
                    case StageEvent():
                        view.stage(event)
                    case NoteEvent():
                        view.note(event.text)
                    case _:
                        return event
            if noticed:
                return ErrorEvent(message="interrupted", exit_code=128 + noticed[0], expected=True)
            return ErrorEvent(message="the job's process ended by itself", exit_code=2, expected=False)
        finally:
            _end(process)


def _environment(request: Request, folder: Path) -> dict[str, str]:
    """Temporary files, Spark's included, go to a directory removed with the job."""
    environment = dict(os.environ, TMPDIR=str(folder))
    if "spark.local.dir" not in request.spark.conf:
        environment.setdefault("SPARK_LOCAL_DIRS", str(folder))
    return environment


def _kept(log: Path) -> Path:
    """A permanent copy of the log, without the passwords of URLs."""
    descriptor, name = tempfile.mkstemp(prefix="tidegate-job-", suffix=".log")
    os.close(descriptor)
    with contextlib.suppress(OSError), log.open(errors="replace") as lines, Path(name).open("w") as kept:
        kept.writelines(map(without_passwords, lines))
    return Path(name)


def _give(process: subprocess.Popen[bytes], request: Request) -> None:
    """Send the request; the pipe stays open as long as this process lives."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request.model_dump_json().encode() + b"\n")
            process.stdin.flush()


def _events(source: int, noticed: list[int]) -> Iterator[StageEvent | NoteEvent | ResultEvent | ErrorEvent]:
    """The job's events until the pipe ends or a signal is noticed."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while not noticed:
            if not selector.select(_POLL_S):
                continue
            data = os.read(source, _READ_BYTES)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield parse_event(line)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the whole group to end, the JVM included, then kill it."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _signals_noticed() -> Iterator[list[int]]:
    """A signal is only noted: an exception at any instruction could lose a new process."""
    noticed: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noticed.append(number)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield noticed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
