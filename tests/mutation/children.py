"""Calls in processes that have the libraries loaded but nothing of Tidegate.

Forked for each call: importing numpy, pydantic and others again takes longer than most mutants live.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.mutation.copies import Copy

_LIBRARIES = (
    *("numpy", "pyroaring", "pcodec", "pydantic", "rocksdict", "prometheus_client", "structlog", "heapdict"),
    *("aiohttp", "typer", "rich", "pytest", "pytest_asyncio", "hypothesis"),
)
_POLL_S = 0.05


class ChildError(Exception):
    """A child has ended without an answer, or took too long. Its text is a line."""


def load_libraries() -> None:
    """To be called once, before the first child."""
    for name in _LIBRARIES:
        importlib.import_module(name)


def call(
    copy: Copy, function: str, arguments: tuple[Any, ...], *, processor_s: float, elapsed_s: float, log: Path
) -> Any:
    """Call `module:name` of the copy's with these arguments, and return its answer.

    Raises ChildError without one within so much processor time of the process, and so much of the clock.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _end(writer, lambda: _called(copy, function, arguments, processor_s, log))
    os.close(writer)
    try:
        return _answer(child, reader, time.monotonic() + elapsed_s)
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whoever it has started, too
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _answer(child: int, reader: int, until_s: float) -> Any:
    os.set_blocking(reader, False)
    data = b""
    while True:
        try:
            more = os.read(reader, 1 << 16)
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise ChildError("it did not end") from None
            time.sleep(_POLL_S)
            continue
        if not more:
            break
        data += more
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise ChildError("it did not end")
    if not data:
        raise RuntimeError(f"a child that judges has failed, its log tells: {status}")
    return pickle.loads(data)  # noqa: S301 our own child's


def _end(writer: int, work: Callable[[], Any]) -> None:
    """Never returns: what a forked process has of its parent is not its own to clean up."""
    try:
        answer = pickle.dumps(work())
        while answer:
            answer = answer[os.write(writer, answer) :]
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _called(copy: Copy, function: str, arguments: tuple[Any, ...], processor_s: float, log: Path) -> Any:
    os.setpgid(0, 0)
    limit_s = int(processor_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(copy.folder)
    sys.dont_write_bytecode = True
    os.environ.update(PYTHONPATH=os.pathsep.join(copy.path), PYTHONDONTWRITEBYTECODE="1")
    here = str(Path(__file__).parents[2])
    sys.path[:] = [*copy.path, *(each for each in sys.path if each not in ("", ".", here))]
    for name in [each for each in sys.modules if each.split(".")[0] in ("tests", "tidegate")]:
        del sys.modules[name]
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)(*arguments)
