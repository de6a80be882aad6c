"""Waiting for something that no frame and no event announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_AGAIN_S = 0.01


async def until(happened: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Look every few milliseconds whether it has happened; `TimeoutError` if it does not."""
    async with asyncio.timeout(timeout_s):
        while not happened():
            await asyncio.sleep(LOOK_AGAIN_S)
