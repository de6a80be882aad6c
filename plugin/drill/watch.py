"""The daemon's own account while a drill runs: polled a few times a second, kept for the plot.

Invariants: the latest answer is replaced whole, so that any thread may read it; silence of the daemon is an
answer too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_INTERVAL_S = 0.2
_JOIN_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class IndexState:
    """The index at one moment; counts are entries.

    ``in_memory``: staged, or in a slice that is being popped. ``on_disk``: in later slices. ``in_flight``:
    sent to the broker and not known acknowledged.
    """

    at_us: int
    held: int
    in_memory: int
    on_disk: int
    in_flight: int
    memory_bytes: int
    disk_bytes: int

    @classmethod
    def of(cls, status: dict[str, Any], at_us: int) -> IndexState:
        """From the JSON of ``/status``."""
        totals = status["totals"]
        active = sum(
            one["entries"]
            for subscription in status["subscriptions"]
            for one in subscription["slices"]
            if one["state"] == "active"
        )
        # A slice's count keeps its entries until the slice is gone: entries handed out are no longer in
        # memory.
        held, in_flight = totals["held"], totals["in_flight"]
        in_memory = min(max(totals["staged"] + active - in_flight, 0), held - in_flight)
        return cls(
            at_us=at_us,
            held=held,
            in_memory=in_memory,
            on_disk=held - in_flight - in_memory,
            in_flight=in_flight,
            memory_bytes=totals["memory_bytes"],
            disk_bytes=totals["disk_bytes"],
        )


class Watch:
    """Asks ``status`` from ``start`` to ``close``; it answers None while the daemon is away."""

    def __init__(self, status: Callable[[], dict[str, Any] | None], now_us: Callable[[], int]) -> None:
        self._status = status
        self._now_us = now_us
        self._latest: IndexState | None = None
        self._history: list[IndexState] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def latest(self) -> IndexState | None:
        """The last answer; None while the daemon is away."""
        return self._latest

    @property
    def history(self) -> list[IndexState]:
        """Every answer so far, in order of time."""
        return list(self._history)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            status = self._status()
            self._latest = state = None if status is None else IndexState.of(status, self._now_us())
            if state is not None:
                self._history.append(state)
