"""News for systemd, which started the daemon: it serves, it stops, its loop still turns.

The protocol is sd_notify(3): lines of text to the datagram socket in ``NOTIFY_SOCKET``. Invariants: without
that variable nothing is sent; an unreachable supervisor disturbs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

_SOCKET, _WATCHDOG_US, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_BEATS = 3
"""News within each time of the watchdog: systemd advises two or more."""


class Supervisor:
    """The supervisor that the environment names, or none. pid: of this process."""

    def __init__(self, environment: Mapping[str, str], pid: int) -> None:
        self._address = environment.get(_SOCKET, "")
        if self._address.startswith("@"):  # Linux's abstract names
            self._address = f"\0{self._address[1:]}"
        self.beat_s = _beat_s(environment, pid) if self._address else None
        self._beating: asyncio.TimerHandle | None = None

    def ready(self, loop: asyncio.AbstractEventLoop) -> None:
        """Say that the daemon serves; from now on also that the loop turns, for a watchdog."""
        self._tell("READY=1")
        self._beat(loop)

    def stopping(self) -> None:
        """Say that the daemon stops."""
        self._tell("STOPPING=1")

    def end(self) -> None:
        """Say nothing more."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self.end()
        if self.beat_s is not None:
            self._tell("WATCHDOG=1")
            self._beating = loop.call_later(self.beat_s, self._beat, loop)

    def _tell(self, news: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as to,
        ):
            to.connect(os.fsencode(self._address))
            to.send(news.encode("ascii"))


def _beat_s(environment: Mapping[str, str], pid: int) -> float | None:
    """The time between two signs of life; None without a watchdog."""
    span_us, of_pid = environment.get(_WATCHDOG_US, ""), environment.get(_WATCHDOG_PID, str(pid))
    if not span_us.isdecimal() or int(span_us) == 0 or of_pid != str(pid):
        return None
    return int(span_us) / 1e6 / _BEATS
