"""A fault and its observation: from the last moment before it until the owner has read all it needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bench.harness.errors import BenchError
from bench.harness.waiting import settled, until
from bench.takeover.faults import Fault
from bench.takeover.judge import YOUNG_NS, came_at, earliest_past, first_after, quiet_ns, served_since
from bench.takeover.place import TOPIC, Place
from bench.takeover.reads import Given, Reading, given_since
from bench.takeover.traffic import PER_S, Traffic
from tidegate.plugin.drill.fault import FaultError

T = TypeVar("T")

WARM_S = 5.0
REST_S = 0.3
DELIVERED_S = 0.5
HORIZON_MS = 2_000
"""How far ahead the shim has what is due, and delivers it without the daemon."""
UNSURE_MS = 250
"""How much later than its fault is begun a daemon is killed, at most."""


@dataclass(frozen=True)
class Stage:
    """The observations of one fault.

    Times in ns of the wall clock; ``readings``: soon after the first due message, and when all was read.
    """

    begun_ns: int
    connected_ns: int
    first_s: float
    readings: tuple[Reading, Reading]
    restored_s: float | None
    peak_mib: float | None


def moved(do: Callable[[], T]) -> T:
    """The result of ``do``, which moves the topic, repeated if the former owner got it back.

    Both brokers ask for it at once if a client is as quick as the new owner.
    """
    try:
        return do()
    except FaultError:
        return do()


class Stages:
    """Makes stages. ``held``: the least number of messages in the tracker when all has been read."""

    def __init__(self, place: Place, traffic: Traffic, held: Callable[[], int], patience_s: float) -> None:
        self._place = place
        self._traffic = traffic
        self._held = held
        self._patience_s = patience_s

    def make(self, fault: Fault) -> Stage:
        """Do it and undo it; once more if Pulsar gave the topic back to its former owner."""
        return moved(lambda: self._make(fault))

    def _make(self, fault: Fault) -> Stage:
        time.sleep(WARM_S)  # so that there is something to repeat, and the former owner is warm
        read_before = 0 if fault.moves else self._place.entries_read()
        given_before = self.given()
        restored_s = {node.name: self._place.restored_s(node) for node in self._place.stand.cluster.nodes}
        if fault.is_planned:
            self._traffic.rest(REST_S)
        steady = {
            number: at_ms
            for number, at_ms in self._traffic.due.copy().items()
            if number >= self._traffic.first
        }
        begun_ns = time.time_ns()
        if fault.is_planned and quiet_ns(list(self._traffic.arrivals), begun_ns) < YOUNG_NS:
            raise BenchError(f"the client did not rest before: {fault.title}")
        undo = fault.do(self._place, self._traffic)
        if fault.moves:
            connected_ns, first_s = self.first_due(self._traffic.wait_connected(begun_ns, self._patience_s))
        else:
            connected_ns, first_s = self._first_past_horizon(steady, begun_ns, time.time_ns())
        readings = self.readings(connected_ns if fault.moves else begun_ns, read_before, given_before)
        took_s = peak_mib = None
        if self._place.ours and self._place.log:
            owner = self._place.owner()
            now_s = self._place.restored_s(owner)
            # Less than before: it is another daemon.
            took_s = now_s - restored_s[owner.name] if now_s >= restored_s[owner.name] else now_s
        if self._place.ours and fault.moves:
            peak_mib = self._place.daemon_peak_mib()
        undo()
        self._place.stand.wait_usable(TOPIC)
        return Stage(begun_ns, connected_ns, first_s, readings, took_s, peak_mib)

    def first_due(self, connected_ns: int) -> tuple[int, float]:
        """When the owner had the consumer, in ns, and the seconds from then to the first due message."""
        first_ns = until(
            "the first due message",
            lambda: first_after(list(self._traffic.arrivals), connected_ns),
            self._patience_s,
            interval_s=0.005,
        )
        since_ns = served_since(connected_ns, self._place.consumer_since_ns(), first_ns)
        return since_ns, (first_ns - since_ns) / 1e9

    def _first_past_horizon(self, due: Mapping[int, int], killed_ns: int, ready_ns: int) -> tuple[int, float]:
        """When the daemon was ready, and the lateness of the first message that only a daemon can have.

        Among those published before its kill: the shim itself has messages due within the horizon after that.
        """
        number = earliest_past(due, killed_ns // 1_000_000 + HORIZON_MS + UNSURE_MS)
        if number is None:
            raise BenchError("nothing was due past the shim's horizon")
        came_ns = until(
            "the first message past the shim's horizon",
            lambda: came_at(list(self._traffic.arrivals), number),
            self._patience_s,
            interval_s=0.005,
        )
        # It may serve before its readiness shows.
        return ready_ns, max(0, came_ns - max(ready_ns, due[number] * 1_000_000)) / 1e9

    def given(self) -> dict[str, Given]:
        """The entries given to each daemon so far."""
        nodes = self._place.stand.cluster.nodes if self._place.ours else []
        return {node.name: self._place.given(node) for node in nodes}

    def readings(
        self, since_ns: int, read_before: int, given_before: Mapping[str, Given]
    ) -> tuple[Reading, Reading]:
        """Soon, and when all has been read. ``read_before``: by the fault, by the same broker."""
        time.sleep(DELIVERED_S)  # due messages have been read, and are on their way
        early = self._reading(since_ns, read_before, given_before)
        self._place.wait_delayed(self._held, self._patience_s)
        settled("the reads to end", lambda: self._place.entries_read() // (PER_S * 10), self._patience_s)
        return early, self._reading(since_ns, read_before, given_before)

    def _reading(self, since_ns: int, read_before: int, given_before: Mapping[str, Given]) -> Reading:
        owner = self._place.owner()
        # These first: messages until the counters answer then count as read again, and not the reverse.
        stored = sum(at_ns >= since_ns for at_ns in list(self._traffic.confirmed_at_ns))
        delivered = sum(one.arrived_at_ns >= since_ns for one in list(self._traffic.arrivals))
        # The daemon answers at once, a broker that has just started does not.
        added = given_since(given_before, owner.name, self._place.given(owner)) if self._place.ours else None
        return Reading(self._place.entries_read() - read_before, added, stored, delivered)
