"""A request to stop a run of many processes, such as the demo and the drills, and the errors that end it.

Invariant: every wait of such a run checks ``Stop`` often, so that it answers an interrupt in a fraction of a
second.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from tidegate.plugin.errors import UserError

_POLL_S = 0.02


class RunError(UserError):
    """The run cannot start or continue; the message says where to look."""


class InterruptedRunError(RunError):
    """A request to stop ends the run."""

    def __init__(self, what: str, signal_number: int) -> None:
        super().__init__(f"interrupted; every process that {what} started has been stopped")
        self.exit_code = 128 + signal_number


class Stop:
    """A request to stop ``what``: a signal handler makes it, every wait checks it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._event = threading.Event()
        self._signal_number = signal.SIGINT.value

    def request(self, signal_number: int = signal.SIGINT) -> None:
        """Ask for the end, because ``signal_number`` came."""
        self._signal_number = signal_number
        self._event.set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises ``InterruptedRunError`` as soon as the end is requested."""
        if self._event.wait(max(seconds, 0.0)):
            raise InterruptedRunError(self._what, self._signal_number)

    def until(self, what: str, done: Callable[[], bool], timeout_s: float, advice: str) -> None:
        """Wait for ``done``. Raises ``RunError`` with ``what`` and ``advice`` when the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline_s:
                raise RunError(f"{what} took more than {timeout_s:.0f} s: {advice}")
            self.pause(_POLL_S)
