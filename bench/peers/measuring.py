"""Memory, processor time and pauses of a peer: of this process, or of its server."""

from __future__ import annotations

import threading
import time

import psutil

OWN_INTERVAL_S = 0.02
SERVER_INTERVAL_S = 0.25


class Pauses:
    """Times calls: their sum and the longest."""

    def __init__(self) -> None:
        self.longest_ms = 0.0
        self.sum_s = 0.0
        self._began_ns = 0

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        took_ns = time.perf_counter_ns() - self._began_ns
        self.longest_ms = max(self.longest_ms, took_ns / 1e6)
        self.sum_s += took_ns / 1e9


class Measured:
    """The measured process, with its children.

    ``server_pid`` 0: this process. A server's processes share pages, so its memory is the sum of proportional
    sizes, slower to read; its processor time includes the client's.
    """

    def __init__(self, server_pid: int) -> None:
        self._server = psutil.Process(server_pid) if server_pid else None
        self._own = psutil.Process()

    @property
    def interval_s(self) -> float:
        """The interval between looks at memory."""
        return SERVER_INTERVAL_S if self._server else OWN_INTERVAL_S

    def memory_bytes(self) -> int:
        """The present resident memory."""
        if self._server is None:
            return int(self._own.memory_info().rss)
        total = 0
        for process in self._family():
            try:
                total += int(process.memory_full_info().pss)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return total

    def cpu_s(self) -> float:
        """The processor time so far, user and system."""
        total = time.process_time()
        for process in self._family():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def _family(self) -> list[psutil.Process]:
        if self._server is None:
            return []
        try:
            return [self._server, *self._server.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class PeakMemory:
    """The peak of memory while it runs, sampled by a thread."""

    def __init__(self, measured: Measured) -> None:
        self._measured = measured
        self.before_bytes = self.peak_bytes = measured.memory_bytes()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop sampling; returns the peak in bytes."""
        self._end.set()
        self._thread.join()
        self._look()
        return self.peak_bytes

    def _look(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self._measured.memory_bytes())

    def _sample(self) -> None:
        while not self._end.wait(self._measured.interval_s):
            self._look()
