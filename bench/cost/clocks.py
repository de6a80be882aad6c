"""Processor time of a process by thread, from the kernel (Linux)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.harness.errors import BenchError

US_PER_TICK = 1e6 / os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12  # of the fields behind the name


@dataclass(frozen=True)
class ThreadTime:
    """Microseconds of one thread since its start, in its own code and in the kernel."""

    name: str
    user_us: float
    system_us: float


def parse_stat(text: str) -> ThreadTime:
    """The times in a thread's ``stat`` file. Its name may have spaces and brackets."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    return ThreadTime(
        head.partition("(")[2], int(fields[_USER]) * US_PER_TICK, int(fields[_SYSTEM]) * US_PER_TICK
    )


def read(pid: int) -> dict[int, ThreadTime]:
    """The time of each thread by its id; raises BenchError if the process is gone."""
    found = {}
    try:
        for folder in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found[int(folder.name)] = parse_stat(
                    (folder / "stat").read_text(encoding="utf-8", errors="replace")
                )
    except OSError as error:
        raise BenchError(f"the threads of process {pid} cannot be read: {error}") from error
    return found


def spent(before: Mapping[int, ThreadTime], after: Mapping[int, ThreadTime]) -> dict[int, ThreadTime]:
    """The time between two readings, of threads that spent any; without threads that have ended."""
    none = ThreadTime("", 0.0, 0.0)
    differences = {
        tid: ThreadTime(
            now.name,
            now.user_us - before.get(tid, none).user_us,
            now.system_us - before.get(tid, none).system_us,
        )
        for tid, now in after.items()
    }
    return {tid: time for tid, time in differences.items() if time.user_us + time.system_us > 0}
