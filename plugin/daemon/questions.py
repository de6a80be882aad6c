"""Questions to the brokers of streams, of one kind, and the wait for each answer.

Invariant: a question ends with an answer, with its stream or with the asker's patience, whichever comes
first.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.messages import Message

AnswerT = TypeVar("AnswerT")


class Questions(Generic[AnswerT]):
    """The questions that have no answer yet."""

    def __init__(self) -> None:
        self._asked: dict[tuple[Stream, int], asyncio.Future[AnswerT | None]] = {}
        self._last_seq = 0

    async def ask(self, stream: Stream, question: Message, patience_s: float) -> AnswerT | None:
        """The broker's answer; None if there is none."""
        self._last_seq += 1
        key = stream, self._last_seq
        answer: asyncio.Future[AnswerT | None] = asyncio.get_running_loop().create_future()
        self._asked[key] = answer
        stream.send(question, seq=key[1])
        try:
            async with asyncio.timeout(patience_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[key]

    def answered(self, stream: Stream, seq: int, answer: AnswerT | None) -> None:
        """Note the broker's answer; None if it does not count."""
        asked = self._asked.get((stream, seq))
        if asked is not None and not asked.done():
            asked.set_result(answer)

    def ended(self, stream: Stream) -> None:
        """End the questions on a stream that is over."""
        for (of, _), asked in self._asked.items():
            if of is stream and not asked.done():
                asked.set_result(None)
