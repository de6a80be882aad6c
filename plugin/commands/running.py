"""Shared by the commands that start brokers: required parts, signals, and the end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from tidegate.plugin.errors import UserError
from tidegate.plugin.local import toolchain
from tidegate.plugin.local.assembled import newest_home, pulsar_home
from tidegate.plugin.local.distribution import checkout
from tidegate.plugin.local.shim import SHIM_JAR

if TYPE_CHECKING:
    from tidegate.plugin.shared.stop import Stop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class MissingPartError(UserError):
    """A part that ``tidegate setup`` installs is missing."""

    exit_code = 2


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def check_home(chosen: Path | None) -> Path:
    """The unpacked Pulsar to run (``chosen``, or the one from ``tidegate setup``), checked to have a JDK."""
    jdk = toolchain.find_jdk(os.environ)
    if isinstance(jdk, toolchain.Problem):
        raise MissingPartError(jdk.text)
    home = (chosen or pulsar_home(os.environ)).absolute()
    if not (home / "bin" / "pulsar").is_file():
        advice = "correct --pulsar-home" if chosen else f"run: {_set_up()}"
        raise MissingPartError(f"there is no Pulsar in {home}: {advice}")
    return home


def check_newer_home(chosen: Path | None) -> Path | None:
    """The Pulsar to upgrade to: ``chosen``, or the newest assembled; None without one."""
    home = chosen.absolute() if chosen is not None else newest_home(os.environ)
    if chosen is not None and not (chosen / "bin" / "pulsar").is_file():
        raise MissingPartError(f"there is no Pulsar in {home}: correct --newer-pulsar-home")
    return home


def check_jar() -> Path:
    """The shim's jar."""
    if not SHIM_JAR.is_file():
        raise MissingPartError(f"the shim's jar is missing ({SHIM_JAR}): {_get_jar()}")
    return SHIM_JAR


def _set_up() -> str:
    return "make setup" if checkout() is not None else "tidegate setup"


def _get_jar() -> str:
    # A wheel cannot be built without it.
    return "run: make setup" if checkout() is not None else "install Tidegate's wheel again"


@contextlib.contextmanager
def signals_stop(stop: Stop) -> Iterator[None]:
    """Let a signal only request the end: an exception at any instruction could lose a new process."""

    def ask(number: int, _frame: FrameType | None) -> None:
        stop.request(number)

    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_at_once(exit_code: int) -> NoReturn:
    """Exit without Python's own shutdown, in which a thread of the Pulsar client would abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
