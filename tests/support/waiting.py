"""Waiting for what no frame and no event announces, with a deadline: no test sleeps in the hope of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tenacity import RetryError, Retrying, retry_if_not_result, stop_after_delay, wait_fixed

LOOK_AGAIN_S = 0.01
POLL_S = 0.05


async def until(happened: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Look every few milliseconds whether it has happened; `TimeoutError` if it does not."""
    async with asyncio.timeout(timeout_s):
        while not happened():
            await asyncio.sleep(LOOK_AGAIN_S)


def wait_until(
    condition: Callable[[], object],
    what: str,
    *,
    timeout_s: float = 60.0,
    during: Future[Any] | None = None,
) -> None:
    """Return once ``condition()`` is true; fail with ``what`` and its last value after ``timeout_s``.

    during: the cause, in the background. An exception of the condition ends the wait at once, as does the end
    of ``during``, with its exception if any.
    """
    if during is not None:
        condition = _while_it_runs(condition, during, what)
    try:
        Retrying(
            stop=stop_after_delay(timeout_s),
            wait=wait_fixed(POLL_S),
            retry=retry_if_not_result(bool),
        )(condition)
    except RetryError as error:
        last = error.last_attempt.result()
        raise AssertionError(f"not within {timeout_s:.0f} s: {what} (last: {last!r})") from None


def _while_it_runs(condition: Callable[[], object], work: Future[Any], what: str) -> Callable[[], object]:
    def look() -> object:
        ended = work.done()  # before the condition: what it did last counts
        met = condition()
        if ended and not met:
            work.result()
            raise AssertionError(f"what was to bring it about has ended: {what}")
        return met

    return look
