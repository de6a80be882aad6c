"""The wait for a callback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def told(ask: Callable[[Callable[[T], None]], None]) -> T:
    """The value of the first call of the function that `ask` is given."""
    value: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def tell(said: T) -> None:
        if not value.done():
            value.set_result(said)

    ask(tell)
    return await value
