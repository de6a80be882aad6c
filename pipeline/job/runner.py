"""The job's process: ``python -m tidegate.pipeline.job.runner EVENTS_FD``, with the request on its input.

Spark starts beside the job, which waits only where it needs Spark; on this machine only for enough work, or
at the user's wish.

Invariants: it reports one result or error, then ends; when its parent is gone (its input is closed), it and
Spark end; a signal ends Spark before the process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

from pydantic import BaseModel

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.failures import explained
from tidegate.pipeline.job.progress import StageWatch
from tidegate.pipeline.job.request import (
    LINE_MAX_BYTES,
    ErrorEvent,
    NoteEvent,
    Request,
    ResultEvent,
    StageEvent,
)
from tidegate.plugin.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOBS = {
    "audit": "tidegate.pipeline.audit.job",
    "tune": "tidegate.pipeline.tune.job",
    "rebuild": "tidegate.pipeline.rebuild.job",
    "verify": "tidegate.pipeline.rebuild.verify",
}
_STOP_S = 8.0
_STARTED_BY = os.getppid()
_JOB_FOLDER = "tidegate-job-"
_INTERRUPTED = 130


class Context(Protocol):
    """The services for a job."""

    @property
    def spark(self) -> SparkSession:
        """The session; waits until it is up. Raises ``PipelineError`` if Spark does not start."""
        ...

    @property
    def spark_is_up(self) -> bool:
        """True if the session is available without waiting."""
        ...

    @property
    def wants_spark(self) -> bool:
        """True if the user has chosen Spark's place or settings: then Spark does the work, however little."""
        ...

    def start_spark(self) -> None:
        """Start Spark, unless started, without waiting."""
        ...

    @property
    def spark_is_here(self) -> bool:
        """True if Spark's workers are on this machine, and so have no advantage over this process."""
        ...

    def note(self, text: str) -> None:
        """Show the user a line."""
        ...

    def shown(self, look: Callable[[], StageEvent]) -> AbstractContextManager[None]:
        """For the block, show the job's own progress instead of Spark's stages."""
        ...


class JobModule(Protocol):
    """The interface of a job's module. ``run`` returns (result, exit code)."""

    def run(self, context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
        """Run it. Raises ``PipelineError``."""
        ...


class RunningJob:
    """A job, and Spark as it starts; ``tell`` takes the events. A context manager."""

    def __init__(self, request: Request, tell: Callable[[BaseModel], None]) -> None:
        self._request = request
        self._tell = tell
        self._watch = StageWatch(tell)
        self._up: Future[SparkSession] = Future()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start Spark, unless the job decides about that."""
        self._watch.__enter__()
        if self.wants_spark:
            self.start_spark()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop Spark if it is up. A JVM that is still starting ends with the process."""
        if self._submitted and self._thread is not None:
            self._thread.join()
        self._watch.__exit__(kind, error, trace)
        if self._up.done() and self._up.exception() is None and not self._nothing_to_tidy:
            with contextlib.suppress(Exception):
                self._up.result().stop()

    @property
    def spark(self) -> SparkSession:
        """See ``Context``."""
        self.start_spark()
        return self._up.result()

    @property
    def wants_spark(self) -> bool:
        """See ``Context``."""
        settings = self._request.spark
        return self._submitted or settings.asked_for or not settings.is_local

    def start_spark(self) -> None:
        """See ``Context``."""
        if self._thread is None:
            if not self._submitted:
                self.note("starting Spark")
            # Here, not in the thread: of two threads that import PySpark at once, one finds it half-made. Nor
            # at the top of the file: it is slow, and not every job needs it.
            importlib.import_module("tidegate.pipeline.job.session")
            self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
            self._thread.start()

    @property
    def spark_is_up(self) -> bool:
        """See ``Context``."""
        return self._up.done()

    @property
    def spark_is_here(self) -> bool:
        """See ``Context``."""
        return self._request.spark.is_local

    def note(self, text: str) -> None:
        """See ``Context``."""
        self._tell(NoteEvent(text=text))

    def shown(self, look: Callable[[], StageEvent]) -> AbstractContextManager[None]:
        """See ``Context``."""
        return self._watch.instead(look)

    @property
    def _submitted(self) -> bool:
        """True if spark-submit has started this process: its JVM exists, and is not ours to end."""
        return "PYSPARK_GATEWAY_PORT" in os.environ

    @property
    def _nothing_to_tidy(self) -> bool:
        """True if the JVM may be killed: it is ours, and keeps nothing outside the job's folder."""
        settings = self._request.spark
        return settings.is_local and not settings.conf and not self._submitted and _alone()

    def _start(self) -> None:
        try:
            from tidegate.pipeline.job.session import start  # noqa: PLC0415

            spark = start(self._request.command, self._request.spark)
            self._watch.of(spark)
            self._up.set_result(spark)
        except Exception as error:
            self._up.set_exception(error)


def run(request: Request, tell: Callable[[BaseModel], None]) -> None:
    """Run the request and report its end; raises only to end the process."""
    try:
        name = JOBS.get(request.command)
        if name is None:
            raise PipelineError(f"there is no job {request.command!r}")
        with RunningJob(request, tell) as running:
            job: JobModule = importlib.import_module(name)
            result, exit_code = job.run(running, request.options)
        tell(ResultEvent(result=result, exit_code=exit_code))
    except Exception as error:
        if not isinstance(error, UserError):
            import traceback  # noqa: PLC0415

            traceback.print_exc()
        tell(explained(error))
    except _EndedError as ended:
        tell(ErrorEvent(message="ended by a signal", exit_code=128 + ended.number, expected=True))


class _EndedError(BaseException):
    """A signal asks for the end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _end_on_signals() -> None:
    def end(number: int, _: FrameType | None) -> None:
        # Even if Spark blocks the exit, the process is gone a little later.
        timer = threading.Timer(_STOP_S, _end_at_once)
        timer.daemon = True
        timer.start()
        signal.signal(number, signal.SIG_IGN)
        raise _EndedError(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _alone() -> bool:
    """True if this process has a group of its own, which launchers of jobs make."""
    return os.getpgrp() == os.getpid()


def _end_at_once() -> None:
    if _alone():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(_INTERRUPTED)


def _end_with(source: BinaryIO) -> None:
    """End when the other end of ``source`` is closed."""

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while source.read(1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def main() -> int:
    """Read the request, run it, report the events."""
    events = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
    lock = threading.Lock()

    def tell(event: BaseModel) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            events.write(event.model_dump_json().encode() + b"\n")

    _end_on_signals()
    try:
        request = Request.model_validate_json(sys.stdin.buffer.readline(LINE_MAX_BYTES))
        _end_with(sys.stdin.buffer)
        run(request, tell)
    except _EndedError:
        pass  # there was nothing to end yet
    finally:
        _end_java()
    return 0


def _end_java() -> None:
    """Let the JVM tidy up, then kill it: one just starting would stay for ever."""
    pyspark = sys.modules.get("pyspark")
    gateway: Any = None if pyspark is None else pyspark.SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        with contextlib.suppress(Exception):
            gateway.shutdown()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            process.stdin.close()
            process.wait(_STOP_S)
    if os.getppid() != _STARTED_BY and _JOB_FOLDER in Path(tempfile.gettempdir()).name:
        # No other process is left to remove it.
        shutil.rmtree(tempfile.gettempdir(), ignore_errors=True)
    if _alone():
        os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
