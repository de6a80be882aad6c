"""Workers: separate processes, for their own memory and to be killed.

A worker's ``main`` prints its figures as one line of JSON, and then waits for the end of its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT


@contextmanager
def worker(module: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a worker until it prints its figures; at the end of the ``with`` block kill it with signal 9.

    Raises BenchError if it ends without figures.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            name = " ".join([module, *arguments[:1]])
            raise BenchError(f"the worker {name} failed with code {process.wait()}; see its message above")
        figures: dict[str, Any] = json.loads(line)
        yield figures
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def measured(module: str, *arguments: str) -> dict[str, Any]:
    """The figures of a worker, which is then killed."""
    with worker(module, *arguments) as figures:
        return figures


def tell_and_wait(figures: dict[str, Any]) -> None:
    """In the worker: print its figures, and wait for its kill or the end of its input."""
    print(json.dumps(figures), flush=True)
    sys.stdin.read()
