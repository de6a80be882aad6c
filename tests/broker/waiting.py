"""Waiting for a condition with a deadline: the tests never sleep for a fixed time in the hope of one."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_not_result, stop_after_delay, wait_fixed

POLL_S = 0.05


def wait_until(condition: Callable[[], object], what: str, *, timeout_s: float = 60.0) -> None:
    """Return once ``condition()`` is true; fail with ``what`` and its last value after ``timeout_s``.

    An exception of the condition ends the wait at once.
    """
    try:
        Retrying(
            stop=stop_after_delay(timeout_s),
            wait=wait_fixed(POLL_S),
            retry=retry_if_not_result(bool),
        )(condition)
    except RetryError as error:
        last = error.last_attempt.result()
        raise AssertionError(f"not within {timeout_s:.0f} s: {what} (last: {last!r})") from None
