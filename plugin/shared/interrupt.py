"""Ctrl-C while there is nothing to clean up: the process ends silently.

Python raises KeyboardInterrupt anywhere, even amid an import: a meaningless traceback, or a callback swallows
it and the process stays. Invariants: SIGINT that the parent process ignores (``nohup``, a script's ``&``)
stays ignored; this module imports next to nothing.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
"""The exit code: 128 and the number of the signal, as shells have it."""


def end_at_once() -> None:
    """SIGINT ends the process from now on. Main thread only."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> bool:
    """SIGINT raises KeyboardInterrupt from now on, for code that has to clean up. Main thread only.

    False if SIGINT did not end the process.
    """
    if signal.getsignal(signal.SIGINT) is not _end:
        return False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return True


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
