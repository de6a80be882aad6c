"""Turns at the times of a subscription's messages: a change by a span alone, the others together.

A span is added to the time that holds. Two changes reading it at once would both add to the same one: one of
the spans, or another change's time, would be lost though answered as done.
"""

from __future__ import annotations

import asyncio


class SpanTurns:
    """The changes of one subscription that are under way."""

    def __init__(self) -> None:
        self._under_way = 0
        self._is_alone = False
        self._over = asyncio.Event()

    async def begin(self, *, alone: bool) -> None:
        """Return when this change may begin; ``end`` must follow."""
        while self._is_alone or (alone and self._under_way):
            self._over.clear()
            await self._over.wait()
        self._under_way += 1
        self._is_alone = alone

    def end(self) -> None:
        """Note that a change is over."""
        self._under_way -= 1
        self._is_alone = False
        self._over.set()
