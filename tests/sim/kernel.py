"""Time, the queue of coming events, and the processes.

One thread, no real clock: an event is a call at a true time; the queue runs them in the order of (time,
request). Invariants:

- the same calls and the same random numbers give the same run;
- an event of a dead process is dropped, one of a stopped process (SIGSTOP) waits until it goes on;
- the random numbers come from one generator, which each step of a history seeds anew: without one step the
  others keep their luck.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
STEPS_MAX = 5_000_000
START_MS = 1_767_225_600_000


class Killed(BaseException):
    """Unwinds the code of a dead process. Not an Exception: nothing may catch it and go on."""


class Violation(BaseException):
    """A broken promise. Not an Exception: it may rise through the product's code."""


class BrokenSimulation(BaseException):
    """An error of the simulation itself, below the product's code, which must not catch it."""


class Process:
    """One life of one process; the next one is another object."""

    __slots__ = ("dead", "name", "on_death", "stopped", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.stopped = False
        self.waiting: list[Event] = []
        self.on_death: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return self.name


class Event:
    """A call to come, unless cancelled first."""

    __slots__ = ("args", "at_ns", "call", "order", "process")

    def __init__(
        self, at_ns: int, order: int, process: Process | None, call: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self.at_ns = at_ns
        self.order = order
        self.process = process
        self.call: Callable[..., Any] | None = call
        self.args = args

    def cancel(self) -> None:
        self.call = None
        self.args = ()

    @property
    def pending(self) -> bool:
        return self.call is not None

    def __lt__(self, other: Event) -> bool:
        return (self.at_ns, self.order) < (other.at_ns, other.order)


class Kernel:
    """The queue. `steps` counts the calls made: the unit of a run's length."""

    def __init__(self, seed: int) -> None:
        self.now_ns = START_MS * NS_PER_MS
        self.steps = 0
        self.random = random.Random(seed)  # noqa: S311 a simulation
        # Numbers that only have to differ each time: drawn apart, so that older histories have their luck.
        self.numbers = random.Random(f"numbers of {seed}")  # noqa: S311 a simulation
        self.trace: Callable[[str], None] | None = None
        self.disturbed_until_ns = self.now_ns  # see `lateness`
        self.on_worker = False  # true while a job of an executor runs
        self._nested = 0
        self._queue: list[tuple[int, int, Event]] = []
        self._order = 0

    @property
    def now_ms(self) -> float:
        """The true time since the run's beginning, for people."""
        return self.now_ns / NS_PER_MS - START_MS

    def note(self, text: str) -> None:
        """Trace an event."""
        if self.trace is not None:
            self.trace(f"{self.now_ms:12.3f} {text}")

    def disturb(self, for_ns: int = 0) -> None:
        """Something goes wrong, now and for that time: nothing need be in time."""
        self.disturbed_until_ns = max(self.disturbed_until_ns, self.now_ns + for_ns)

    # ---- requesting calls

    def at(self, at_ns: int, process: Process | None, call: Callable[..., Any], *args: Any) -> Event:
        """Make the call at that time, or now if it is over."""
        self._order += 1
        at_ns = max(at_ns, self.now_ns)
        event = Event(at_ns, self._order, process, call, args)
        heapq.heappush(self._queue, (at_ns, self._order, event))
        return event

    def after(self, delay_ns: int, process: Process | None, call: Callable[..., Any], *args: Any) -> Event:
        """Make the call after that time."""
        return self.at(self.now_ns + delay_ns, process, call, *args)

    # ---- making them

    def run_until(self, until_ns: int) -> None:
        """Make every call up to that time; then it is that time."""
        queue = self._queue
        while queue and queue[0][0] <= until_ns:
            at_ns, _, event = heapq.heappop(queue)
            call, process = event.call, event.process
            if call is None:
                continue
            if process is not None:
                if process.dead:
                    continue
                if process.stopped:
                    process.waiting.append(event)
                    continue
            self.now_ns = max(self.now_ns, at_ns)
            self.steps += 1
            if self.steps > STEPS_MAX:
                raise Violation(f"it does not come to rest: {self.steps} steps")
            event.call = None
            call(*event.args)
        self.now_ns = max(self.now_ns, until_ns)

    def run_nested(self, until_ns: int, limit: int = 8) -> None:
        """As `run_until`, within a call: events while that one waits."""
        if self._nested >= limit:
            return
        self._nested += 1
        on_worker, self.on_worker = self.on_worker, False
        try:
            self.run_until(until_ns)
        except Exception as error:
            raise BrokenSimulation(repr(error)) from error
        finally:
            self._nested -= 1
            self.on_worker = on_worker

    # ---- processes

    def kill(self, process: Process) -> None:
        """kill -9: nothing of the process is called any more."""
        if process.dead:
            return
        process.dead = True
        self.disturb()
        process.waiting.clear()
        for call in process.on_death:
            call()

    def stop(self, process: Process) -> None:
        """SIGSTOP."""
        self.disturb()
        process.stopped = True

    def go_on(self, process: Process) -> None:
        """SIGCONT: calls due meanwhile are made now, in order."""
        if process.stopped and not process.dead:
            process.stopped = False
            self.disturb()
            waiting, process.waiting = process.waiting, []
            for event in waiting:
                if event.call is not None:
                    heapq.heappush(self._queue, (self.now_ns, event.order, event))

    # ---- luck

    def chance(self, share: float) -> bool:
        """True in about this share of the calls."""
        return share > 0 and self.random.random() < share

    def between_ns(self, low_ns: int, high_ns: int) -> int:
        """A time from low to high."""
        return low_ns if high_ns <= low_ns else low_ns + int(self.random.random() * (high_ns - low_ns))
