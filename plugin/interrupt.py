"""Ctrl-C while there is nothing to clean up: the process ends, without a word.

Python raises KeyboardInterrupt wherever it is, and while a command is loaded that is amid an import: the
user gets a traceback of what he does not know, or nothing ends, as a callback has swallowed the exception.
Invariants: whoever started the process with SIGINT ignored (``nohup``, a script's ``&``) keeps it so; next to
nothing is imported here.
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
    """SIGINT raises KeyboardInterrupt from now on, for what has to clean up. Main thread only.

    False if SIGINT did not end the process.
    """
    if signal.getsignal(signal.SIGINT) is not _end:
        return False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return True


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
