"""A worker's measurements of itself: duration of calls, peak memory, file sizes.

Invariants: a pause is one call of the answering thread with all its waits (the interpreter lock's too);
memory is the kernel's resident set, so no peak escapes; sizes are of whole files on disk.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from bench.harness.errors import BenchError

MIB = 1 << 20
NS_PER_MS = 1_000_000
_RESET_PEAK = Path("/proc/self/clear_refs")


class Pauses:
    """Durations of calls, by the kind of call; 8 bytes each."""

    def __init__(self) -> None:
        self._ns: dict[str, array[int]] = {}

    @contextlib.contextmanager
    def timed(self, kind: str) -> Iterator[None]:
        """Time the body as one call of ``kind``."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.note(kind, time.perf_counter_ns() - began_ns)

    def note(self, kind: str, took_ns: int) -> None:
        """Add a duration measured elsewhere."""
        durations = self._ns.get(kind)
        if durations is None:
            durations = self._ns[kind] = array("q")
        durations.append(took_ns)

    def longest_ms(self, kind: str | None = None) -> float:
        """The longest call of a kind, or of any; 0 without calls."""
        kinds = self._ns.values() if kind is None else [self._ns.get(kind, array("q"))]
        return max((max(durations) for durations in kinds if durations), default=0) / NS_PER_MS

    def quantile_ms(self, probability: float, kind: str | None = None) -> float:
        """That quantile of the calls of a kind, or of all together; 0 without calls."""
        kinds = self._ns.values() if kind is None else [self._ns.get(kind, array("q"))]
        every = [np.frombuffer(durations, dtype=np.int64) for durations in kinds if durations]
        return float(np.quantile(np.concatenate(every), probability)) / NS_PER_MS if every else 0.0

    def total_s(self, kind: str) -> float:
        """Seconds spent in all calls of a kind."""
        return sum(self._ns.get(kind, array("q"))) / 1e9

    def by_kind_ms(self) -> dict[str, float]:
        """The longest call of each kind."""
        return {kind: self.longest_ms(kind) for kind in sorted(self._ns)}


class PeakMemory:
    """This process's peak resident memory since the object was made (or ``reset``), in MiB.

    The kernel (Linux) keeps the peak. Raises BenchError elsewhere.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again: the peak is the present resident size."""
        try:
            _RESET_PEAK.write_text("5", encoding="ascii")
        except OSError as error:
            raise BenchError(
                f"the peak of memory cannot be reset, this bench needs Linux: {error}"
            ) from error

    @property
    def peak_mib(self) -> float:
        """The peak so far."""
        return peak_memory_mib("self")


def peak_memory_mib(process: int | str) -> float:
    """A process's peak resident memory, in MiB. Raises BenchError where it is unknown."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) / 1024
    raise BenchError("the kernel does not tell the peak of memory, this bench needs Linux")


def resident_mib() -> float:
    """The present resident memory, in MiB."""
    return float(psutil.Process().memory_info().rss) / MIB


def disk_bytes(folder: Path, suffix: str = "") -> int:
    """Bytes of all files below a folder with that suffix, without those that vanish meanwhile."""
    total = 0
    for path in folder.rglob(f"*{suffix}"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total
