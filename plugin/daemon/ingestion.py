"""Entries from another source than a broker, as a rebuild; and questions that check an index.

A client first takes the subscription (the query `take-in`) and keeps it while its connection lasts: a second
client is refused, and a killed one has released it. Invariants:

- entries go the way of all others: through the journal, in pieces with a turn of the loop between them, and
  not while reading pauses;
- a block is answered when durable, and only then does the broker learn that its positions are held; it learns
  of disowned positions at once;
- positions held, known acknowledged or up to mark-delete stay: the same block a second time changes nothing.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from tidegate.index import (
    UNCLAIMED,
    Catalog,
    CorruptBlockError,
    DelayIndex,
    Entries,
    EntryKey,
    Page,
    Position,
    PositionSet,
    SubscriptionName,
    TidegateIndexError,
)
from tidegate.index.format import decode_block, encode_block
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.held_news import HeldNews
from tidegate.plugin.daemon.retention import Retention
from tidegate.plugin.daemon.told import told
from tidegate.plugin.errors import UnknownNameError, UserError
from tidegate.plugin.wire.control_messages import Ingest, json_body
from tidegate.plugin.wire.messages import NAME_BYTES_MAX
from tidegate.plugin.wire.position_pieces import split_positions

if TYPE_CHECKING:
    import structlog

PIECE_ENTRIES = 8_192  # put in at once: some milliseconds of the loop
PAGE_ENTRIES = 65_536  # in one answer: a block's worth
PAGE_TRIES = 3  # a persist may replace blocks that are about to be read
_NAME_MISSING = "a query about an index needs topic and subscription"
_KEY = ("after_ms", "after_ledger", "after_entry")


class IngestionOwner(Protocol):
    """The engine's part."""

    @property
    def storage_failing(self) -> bool:
        """True while nothing can be made durable."""
        ...

    def read_pause_s(self) -> float:
        """The wait after the last entries, 0 for none. Then ask again."""
        ...

    def added(self, index: DelayIndex, positions: PositionSet) -> None:
        """Note that these were put in, and are held: some may be due."""
        ...

    def changed_by_others(self, index: DelayIndex) -> None:
        """Note a change that came from no broker."""
        ...


_UNKNOWN: Position = (-1, -1)


class Ingestion:
    """The subscriptions that clients put entries into; ``holder`` stands for a connection."""

    def __init__(
        self,
        catalog: Catalog,
        owner: IngestionOwner,
        *,
        committer: Committer,
        held_news: HeldNews,
        retention: Retention,
        executor: Executor | None,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._owner = owner
        self._committer = committer
        self._held_news = held_news
        self._retention = retention
        self._executor = executor
        self._log = log
        self._holders: dict[SubscriptionName, object] = {}
        self._put_in: WeakKeyDictionary[DelayIndex, PositionSet] = WeakKeyDictionary()
        """Positions put in by clients, by index, until another owner opens it."""

    def gone(self, holder: object) -> None:
        """Free a closed connection's subscriptions."""
        for name in [name for name, one in self._holders.items() if one is holder]:
            del self._holders[name]

    def settle(self, index: DelayIndex, end: Position) -> None:
        """Stop answering for entries beyond the topic's `end` that clients put in before this OPEN.

        A broker takes the end as it loads the topic, and may reach the daemon later: without this its OPEN
        would look like one of an earlier history. The broker reads these entries. Raises TidegateIndexError.
        """
        put_in = self._put_in.pop(index, None)
        if put_in is None or end == _UNKNOWN:
            return
        beyond = index.state.held.snapshot()
        beyond.discard_up_to(*end)
        if beyond.issubset(put_in):  # otherwise the owner before had more of the topic: another history
            index.disown(beyond)

    # ---- questions

    def take_in(self, holder: object, request: dict[str, object]) -> dict[str, Any]:
        """The query `take-in`. Makes an index if no broker has opened the subscription yet.

        Raises ``UserError`` if another client has it.
        """
        name = _name(request)
        if self._holders.get(name, holder) is not holder:
            raise UserError(f"another rebuild of {name} is running: wait for it, or end it")
        index = self._catalog.get(name)
        known = index is not None
        if index is None:
            index = self._catalog.subscription(name, UNCLAIMED)
            self._retention.unserved(index)
        self._holders[name] = holder
        self._log.info("entries are taken in", topic=name.topic, subscription=name.subscription, known=known)
        return {
            "known": known,
            "held": len(index.state.held),
            "acknowledged": len(index.state.acknowledged),
            "slice_width_ms": index.width.width_ms,
        }

    def about(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `index`: if there is one, and its seal of the cursor. Makes nothing."""
        index = self._catalog.get(_name(request))
        return {"known": False} if index is None else {"known": True, "generation": index.state.generation}

    def positions(self, request: dict[str, object]) -> Iterator[dict[str, Any]]:
        """The query `positions`: the held and the known acknowledged ones, in as many answers as needed."""
        index = self._index(_name(request))
        held, acknowledged = index.state.held.snapshot(), index.state.acknowledged.snapshot()
        for what, positions in (("held", held), ("acknowledged", acknowledged)):
            for part in split_positions(positions):
                yield {what: _text(part.serialize()), "last": False}
        mark = index.state.mark
        yield {"mark_delete": f"{mark[0]}:{mark[1]}", "last": True}

    async def entries(self, request: dict[str, object]) -> dict[str, Any]:
        """The query `entries`: held ones after a key, sorted, packed as a block; and the next key."""
        name = _name(request)
        key = _key(request)
        page = await self._page(name, key)
        entries = page.entries.take(self._index(name).state.held.contains(page.entries))
        answer: dict[str, Any] = {"entries": len(entries), "last": page.last is None}
        if len(entries):
            answer["block"] = _text(encode_block(entries))
        if page.last is not None:
            answer |= dict(zip(_KEY, page.last, strict=True))
        return answer

    async def _page(self, name: SubscriptionName, key: EntryKey) -> Page:
        for tries_left in reversed(range(PAGE_TRIES)):
            try:
                reader = self._index(name).page_reader(with_moved=False)
                if self._executor is None:
                    return reader.after(key, PAGE_ENTRIES, strict=tries_left > 0)
                read = partial(reader.after, key, PAGE_ENTRIES, strict=tries_left > 0)
                return await asyncio.get_running_loop().run_in_executor(self._executor, read)
            except CorruptBlockError:
                continue
            except TidegateIndexError as error:
                raise UserError(f"the index of {name} cannot be read: {error}") from error
        raise AssertionError("the last try leaves out unreadable blocks")

    # ---- entries

    async def put(self, holder: object, message: Ingest) -> dict[str, Any]:
        """Put a block in, or disown its positions. Raises ``UserError``."""
        name = SubscriptionName(message.topic, message.subscription)
        if self._holders.get(name) is not holder:
            raise UserError(f"nobody has taken {name} for this: ask take-in first")
        try:
            entries = decode_block(message.block).validated()
        except TidegateIndexError as error:
            raise UserError(f"not a block of entries: {error}") from error
        if entries.deliver_at_ms.min() < 0:
            raise UserError("not a block of entries: a time is before 1970")
        if message.disown:
            gone, token = self._disown(name, entries)
            await self._durable(token)
            return {"entries": len(entries), "disowned": len(gone)}
        fresh = PositionSet()
        for start in range(0, len(entries), PIECE_ENTRIES):
            while (pause_s := self._owner.read_pause_s()) > 0:
                await asyncio.sleep(pause_s)
            part = entries.part(start, min(len(entries), start + PIECE_ENTRIES))
            token = self._add(name, part, fresh)
            await asyncio.sleep(0)
        await self._durable(token)
        index = self._catalog.get(name)
        if index is not None:
            # The broker already knows positions acknowledged since.
            self._held_news.tell_held(name, index.state.held_among(fresh))
        return {"entries": len(entries), "added": len(fresh)}

    def _add(self, name: SubscriptionName, part: Entries, fresh: PositionSet) -> int:
        if self._owner.storage_failing:
            raise UserError("the store is failing, nothing can be made durable: try again later")
        index = self._index(name)
        positions = PositionSet.of_entries(part)
        known = index.state.held_among(positions)
        try:
            token = index.add(part)
        except TidegateIndexError as error:
            raise UserError(f"the index of {name} refuses entries: {error}") from error
        except Exception:
            index.doubt()  # some of its entries may count as held by now, and be nowhere
            raise
        new = index.state.held_among(positions).difference(known)
        fresh.update(new)
        self._put_in.setdefault(index, PositionSet()).update(new)
        self._owner.added(index, new)
        return token

    def _disown(self, name: SubscriptionName, entries: Entries) -> tuple[PositionSet, int]:
        if self._owner.storage_failing:
            raise UserError("the store is failing, nothing can be made durable: try again later")
        index = self._index(name)
        try:
            return index.disown(PositionSet.of_entries(entries))
        except Exception:
            index.doubt()
            raise
        finally:
            self._owner.changed_by_others(index)

    async def _durable(self, token: int) -> None:
        error = await told(partial(self._committer.after, token))
        if error is not None:
            raise UserError(f"the store fails, nothing was made durable: {error}")

    def _index(self, name: SubscriptionName) -> DelayIndex:
        index = self._catalog.get(name)
        if index is None:
            raise UserError(f"the daemon has no index of {name}")
        return index


def refusal(error: UserError) -> bytes:
    """The answer with the reason why nothing was done; with ``status`` if programs may rely on it."""
    known = {"status": int(HTTPStatus.NOT_FOUND)} if isinstance(error, UnknownNameError) else {}
    return json_body({"error": str(error), **known})


def _name(request: dict[str, object]) -> SubscriptionName:
    topic, subscription = request.get("topic"), request.get("subscription")
    if not isinstance(topic, str) or not isinstance(subscription, str) or not topic or not subscription:
        raise UserError(_NAME_MISSING)
    if max(len(topic.encode()), len(subscription.encode())) > NAME_BYTES_MAX:
        raise UserError(f"a topic or subscription has at most {NAME_BYTES_MAX} bytes")
    return SubscriptionName(topic, subscription)


def _key(request: dict[str, object]) -> EntryKey:
    deliver_at_ms, ledger_id, entry_id = (_number(request.get(one, -1)) for one in _KEY)
    return deliver_at_ms, ledger_id, entry_id


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 63:
        raise UserError(f"{', '.join(_KEY)} must be numbers of 63 bits")
    return value


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
