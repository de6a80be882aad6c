"""Waiting for other processes, with a deadline and a reason at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import tenacity

from bench.harness.errors import DeadlineError

T = TypeVar("T")


def until(what: str, probe: Callable[[], T | None], timeout_s: float, interval_s: float = 0.02) -> T:
    """Call ``probe`` until its answer is true, and return that.

    Raises DeadlineError naming ``what`` after ``timeout_s``. For other processes' state, which has no event.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_fixed(interval_s),
        retry=tenacity.retry_if_result(lambda answer: not answer),
    )
    try:
        answer = retrying(probe)
    except tenacity.RetryError as error:
        raise DeadlineError(f"waited {timeout_s:.0f} s for {what}, in vain") from error
    if answer is None:
        raise DeadlineError(f"waited for {what}, in vain")
    return answer


def at_least(
    what: str, probe: Callable[[], int], wanted: Callable[[], int], timeout_s: float, interval_s: float = 0.2
) -> None:
    """Return once the probe's number reaches ``wanted``; raises DeadlineError after ``timeout_s``.

    ``wanted`` is evaluated each time: it falls while counted messages become due.
    """
    until(what, lambda: probe() >= wanted(), timeout_s, interval_s)


def settled(what: str, probe: Callable[[], int], timeout_s: float, quiet_s: float = 3.0) -> int:
    """The probe's number after ``quiet_s`` without change; raises DeadlineError after ``timeout_s``."""
    seen = probe()
    since_s = time.monotonic()

    def unchanged() -> bool:
        nonlocal seen, since_s
        now = probe()
        if now != seen:
            seen, since_s = now, time.monotonic()
        return time.monotonic() - since_s >= quiet_s

    until(what, unchanged, timeout_s, interval_s=0.25)
    return seen
