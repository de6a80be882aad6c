"""A process of this machine as a part of a stand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from tidegate.plugin.drill.fault import FaultError, State
from tidegate.plugin.local.process import LocalProcess

_SIGNAL_TIMEOUT_S = 5.0
_POLL_S = 0.01
_STOPPED = ("T", "t")


class LocalPart:
    """A ``LocalProcess`` that was started for the drills."""

    def __init__(
        self, process: LocalProcess, pause: Callable[[float], None], name: str | None = None
    ) -> None:
        self._process = process
        self._name = name or process.name
        self._pause = pause

    @property
    def name(self) -> str:
        """Its name in sentences."""
        return self._name

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        self._process.stop()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self._process.start()

    def pause(self) -> None:
        """SIGSTOP, and wait until the kernel confirms it."""
        self._process.send_signal(SIGSTOP)
        self._until(State.PAUSED)

    def resume(self) -> None:
        """SIGCONT, and wait until the kernel confirms it."""
        self._process.send_signal(SIGCONT)
        self._until(State.RUNNING)

    def state(self) -> State:
        """From the kernel."""
        if not self._process.running:
            return State.GONE
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return State.GONE
        # The name, in parentheses, may contain anything.
        return State.PAUSED if text.rpartition(")")[2].split()[0] in _STOPPED else State.RUNNING

    def _until(self, wanted: State) -> None:
        deadline_s = time.monotonic() + _SIGNAL_TIMEOUT_S
        while self.state() is not wanted:
            if time.monotonic() > deadline_s:
                raise FaultError(f"the {self.name} should be {wanted} and is {self.state()}")
            self._pause(_POLL_S)


class Together:
    """Several processes that get the same treatment at once, in order; they start in the reverse order."""

    def __init__(self, name: str, parts: Sequence[LocalPart]) -> None:
        self.name = name
        self._parts = list(parts)

    def kill(self) -> None:
        """Kill -9 of each."""
        for part in self._parts:
            part.kill()

    def stop(self) -> None:
        """End each in an orderly way."""
        for part in self._parts:
            part.stop()

    def start(self) -> None:
        """Start those that are gone."""
        for part in reversed(self._parts):
            if part.state() is State.GONE:
                part.start()

    def pause(self) -> None:
        """SIGSTOP for each."""
        for part in self._parts:
            part.pause()

    def resume(self) -> None:
        """SIGCONT for each."""
        for part in reversed(self._parts):
            part.resume()

    def state(self) -> State:
        """Their common state; running if they differ."""
        states = {part.state() for part in self._parts}
        return states.pop() if len(states) == 1 else State.RUNNING
