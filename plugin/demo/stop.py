"""A request to stop the demo, and the errors that end it.

Invariant: every wait of the demo looks at ``Stop`` often, so that an interrupt is answered in a fraction of a
second.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

from tidegate.plugin.errors import UserError

_POLL_S = 0.02


class DemoError(UserError):
    """The demo cannot start or go on; the message says what to look at."""


class InterruptedDemoError(DemoError):
    """Somebody asked the demo to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__("interrupted; every process that the demo started has been stopped")
        self.exit_code = 128 + signal_number


class Stop:
    """A request to stop, made from a signal handler and looked at wherever the demo waits."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._signal_number = signal.SIGINT.value

    def request(self, signal_number: int = signal.SIGINT) -> None:
        """Ask for the end, because ``signal_number`` came."""
        self._signal_number = signal_number
        self._event.set()

    def pause(self, seconds: float) -> None:
        """Wait. Raises ``InterruptedDemoError`` as soon as the end is asked for."""
        if self._event.wait(max(seconds, 0.0)):
            raise InterruptedDemoError(self._signal_number)

    def until(self, what: str, done: Callable[[], bool], timeout_s: float, advice: str) -> None:
        """Wait for ``done``. Raises ``DemoError`` naming ``what``, with ``advice``, when the time is up."""
        deadline_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline_s:
                raise DemoError(f"{what} took more than {timeout_s:.0f} s: {advice}")
            self.pause(_POLL_S)
