"""A look into stored messages: the content of one, and those with a key or a property.

The broker that serves the subscription reads them, beside its consumers. Invariants:

- one read of a broker is under way at a time, of at most ``PIECE`` messages, and a rest of twice its time
  follows (``docs/decisions/read-ahead.md``); a silent broker delays no other one's reads;
- an answer is exact: a message that cannot be read now makes an error, never a guess.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from tidegate.index import Clock, DelayIndex, Position, PositionSet
from tidegate.plugin.daemon.ownership import Ownership
from tidegate.plugin.daemon.questions import Questions
from tidegate.plugin.daemon.selection import parse_id, partition_of
from tidegate.plugin.daemon.stream import Link, Stream
from tidegate.plugin.errors import NotNowError, UserError
from tidegate.plugin.wire.messages import PEEK_VERSION, Peek, Peeked, PeekKind, Sought

PIECE = 512
PAGE_MAX = 2_048  # messages read for one answer
TRIES = 3
PATIENCE_S = 10.0
CONTENT_PATIENCE_S = 2.0
REST = 2  # times as long as the read
REST_MAX_S = 1.0
NAME_LENGTH_MAX = 8_192
CONTENT = ("key", "properties", "size_bytes")
NS_PER_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Chunk:
    """A message that is one of ``count`` chunks of a larger one, named ``uuid``."""

    number: int
    """From 0."""
    count: int
    uuid: str


class Peeking:
    """The reads that are under way."""

    def __init__(self, clock: Clock, ownership: Ownership) -> None:
        self._clock = clock
        self._ownership = ownership
        self._turns: WeakKeyDictionary[Link, asyncio.Lock] = WeakKeyDictionary()
        self.questions: Questions[Peeked] = Questions()

    async def content(self, index: DelayIndex, position: Position) -> dict[str, Any]:
        """`key`, `properties` and `size_bytes` of a message; empty if no broker can tell now."""
        stream = self._stream(index)
        if stream is None or stream.connection.version < PEEK_VERSION:
            return {}
        answer = await self.questions.ask(stream, Peek(PositionSet.of([position])), CONTENT_PATIENCE_S)
        if answer is None or not answer.content:
            return {}
        try:
            found = json.loads(answer.content)
        except ValueError:
            return {}
        return {name: found[name] for name in CONTENT if name in found} if isinstance(found, dict) else {}

    async def chunks(self, index: DelayIndex, positions: PositionSet) -> dict[Position, Chunk]:
        """The chunks among at most ``PIECE`` messages, as far as a broker can tell soon."""
        named: dict[Position, Chunk] = {}
        left = positions
        try:
            async with asyncio.timeout(CONTENT_PATIENCE_S):
                for _ in range(TRIES):
                    answer = await self._read(index, left, Sought())
                    named |= _chunks_of(answer)
                    left = answer.unread
                    if not left:
                        return named
        except (NotNowError, TimeoutError):
            pass
        return {}  # an unreadable chunk may be one of the missing ones

    async def select(self, indexes: list[DelayIndex], sought: Sought, page: dict[str, Any]) -> dict[str, Any]:
        """A page of the waiting messages that match. Raises ``UserError``.

        It has the number of messages `read` for it, and their bytes (`read_bytes`).
        """
        of: dict[int | None, list[DelayIndex]] = {}  # segments of a scalable topic have no number
        for index in indexes:
            of.setdefault(partition_of(index.name), []).append(index)
        positions: dict[int | None, PositionSet] = {}
        for entry in page["entries"]:
            position, partition = parse_id(entry["message_id"])
            positions.setdefault(partition, PositionSet()).update(PositionSet.of([position]))
        matching: dict[int | None, PositionSet] = {}
        read_bytes = 0
        for partition, some in positions.items():
            found = matching[partition] = PositionSet()
            for index in of[partition]:
                mine = some if len(of[partition]) == 1 else index.state.held_among(some)
                matched, size = await self._matching(index, mine, sought)
                found.update(matched)
                read_bytes += size
        kept = [one for one in page["entries"] if _is_in(matching, one["message_id"])]
        return page | {"entries": kept, "read": len(page["entries"]), "read_bytes": read_bytes}

    async def _matching(
        self, index: DelayIndex, positions: PositionSet, sought: Sought
    ) -> tuple[PositionSet, int]:
        found, read_bytes = PositionSet(), 0
        wanted = list(positions)
        for at in range(0, len(wanted), PIECE):
            left = PositionSet.of(wanted[at : at + PIECE])
            for _ in range(TRIES):
                answer = await self._read(index, left, sought)
                found.update(answer.matching)
                read_bytes += answer.read_bytes
                left = answer.unread
                if not left:
                    break
            else:
                raise NotNowError(f"{len(left)} messages of {index.name} cannot be read now: ask again")
        return found, read_bytes

    async def _read(self, index: DelayIndex, positions: PositionSet, sought: Sought) -> Peeked:
        broker = self._reading(index).connection
        async with self._turn(broker, index):
            stream = self._reading(index)
            if stream.connection is not broker:
                raise NotNowError(f"{index.name} has moved to another broker meanwhile: ask again")
            began_ns = self._clock.monotonic_ns()
            answer = await self.questions.ask(stream, Peek(positions, sought), PATIENCE_S)
            if answer is None:
                raise NotNowError(f"the broker of {index.name} has not read its messages in time: ask again")
            took_s = (self._clock.monotonic_ns() - began_ns) / NS_PER_SECOND
            await asyncio.sleep(min(REST * took_s, REST_MAX_S))
            return answer

    @asynccontextmanager
    async def _turn(self, broker: Link, index: DelayIndex) -> AsyncIterator[None]:
        """The only read of a broker. Raises ``NotNowError`` if others take too long."""
        turn = self._turns.setdefault(broker, asyncio.Lock())
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn.acquire()
        except TimeoutError:
            raise NotNowError(f"the broker of {index.name} is still reading for others: ask again") from None
        try:
            yield
        finally:
            turn.release()

    def _reading(self, index: DelayIndex) -> Stream:
        """The stream of a broker that can read its messages. Raises ``NotNowError``."""
        stream = self._stream(index)
        if stream is None:
            raise NotNowError(
                f"no broker that could read serves {index.name} now: subscribe a consumer, and ask again"
            )
        if stream.connection.version < PEEK_VERSION:
            raise NotNowError(
                "the broker has a shim that cannot read messages: restart it with this version's jar"
            )
        return stream

    def _stream(self, index: DelayIndex) -> Stream | None:
        stream = self._ownership.get(index.name)
        serves = stream is not None and stream.answer_sent and not stream.session.closing
        return stream if serves else None


def _chunks_of(answer: Peeked) -> dict[Position, Chunk]:
    try:
        found = json.loads(answer.content or b"{}")["chunks"]
        named = {parse_id(name)[0]: Chunk(*told) for name, told in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, UserError):
        return {}  # an older shim tells none
    return {
        at: one
        for at, one in named.items()
        if type(one.number) is type(one.count) is int and type(one.uuid) is str
    }


def _is_in(found: dict[int | None, PositionSet], message_id: str) -> bool:
    position, partition = parse_id(message_id)
    return position in found[partition]


def sought_of(request: dict[str, object]) -> Sought | None:
    """The messages that a request looks for; None if it takes any. Raises ``UserError``."""
    key, given = request.get("key"), request.get("property")
    if key is None and given is None:
        return None
    if key is not None and given is not None:
        raise UserError("give one of key and property")
    if key is not None:
        if not isinstance(key, str) or len(key.encode()) > NAME_LENGTH_MAX:
            raise UserError(f"key must be a text of {NAME_LENGTH_MAX} bytes at most")
        return Sought(PeekKind.KEY, "", key)
    name, sign, value = given.partition("=") if isinstance(given, str) else ("", "", "")
    if not sign or not name or len(name.encode()) > NAME_LENGTH_MAX or len(value.encode()) > NAME_LENGTH_MAX:
        raise UserError(f"property must be NAME=VALUE, each of {NAME_LENGTH_MAX} bytes at most")
    return Sought(PeekKind.PROPERTY, name, value)
