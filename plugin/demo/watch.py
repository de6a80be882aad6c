"""The daemon's own account while the demo runs: polled a few times a second, kept for the plot.

Invariants: the latest answer is replaced whole, so that any thread may read it; silence of the daemon is an
answer too.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import httpx

from tidegate.plugin.demo.recorder import now_us

_INTERVAL_S = 0.2


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
    slices_on_disk: int
    memory_bytes: int
    disk_bytes: int
    streams: int

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
        # A slice's count keeps its entries until the slice is gone: those handed out are not in memory any
        # more.
        held, in_flight = totals["held"], totals["in_flight"]
        in_memory = min(max(totals["staged"] + active - in_flight, 0), held - in_flight)
        return cls(
            at_us=at_us,
            held=held,
            in_memory=in_memory,
            on_disk=held - in_flight - in_memory,
            in_flight=in_flight,
            slices_on_disk=totals["slices_on_disk"],
            memory_bytes=totals["memory_bytes"],
            disk_bytes=totals["disk_bytes"],
            streams=sum(broker["streams"] for broker in status["brokers"]),
        )


class Watch:
    """Polls the daemon at ``url``, or nothing if it is None, from ``start`` to ``close``."""

    def __init__(self, url: str | None) -> None:
        self._url = url
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
        if self._url is not None:
            self._thread.start()

    def ask(self) -> IndexState | None:
        """Poll now; None if the daemon does not answer."""
        if self._url is None:
            return None
        with httpx.Client(base_url=self._url, timeout=2.0, trust_env=False) as client:
            return self._ask(client)

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        url = self._url or ""
        with httpx.Client(base_url=url, timeout=1.0, trust_env=False) as client:
            while not self._closed.wait(_INTERVAL_S):
                self._latest = state = self._ask(client)
                if state is not None:
                    self._history.append(state)

    @staticmethod
    def _ask(client: httpx.Client) -> IndexState | None:
        try:
            answer = client.get("/status")
            return IndexState.of(answer.json(), now_us()) if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None
