"""Bugs to plant in the shipping and reading of index logs. See `plants`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from tests.sim.replaced import replaced
from tidegate.index.catalog.chains import Chains
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.log.home import AwayError, Home, NoLedgerError, RefusedError
from tidegate.index.log.landing import Landing
from tidegate.index.log.object_home import ObjectHome
from tidegate.index.log.places import Places
from tidegate.index.log.pointer import of_home
from tidegate.index.log.snapshot import Snapshot
from tidegate.index.log.tap import Noted
from tidegate.index.log.waiting import Waiting
from tidegate.index.log.writer import LogWriter
from tidegate.index.store import Batch, Store
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.index_logs import restorer
from tidegate.plugin.daemon.index_logs.block_fetch import BlockFetch
from tidegate.plugin.daemon.index_logs.fetches import Fetches
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.last_words import LastWords
from tidegate.plugin.daemon.index_logs.stream_log import StreamLog
from tidegate.plugin.wire.log_messages import LogAnswer, LogRequest


class _AnyChain(Chain):
    """Claims for every log that the local data has all of it."""

    def has(self, ledger_id: int, home: str) -> bool:
        return True


@contextmanager
def pointer_not_compared() -> Iterator[None]:
    """A daemon with an index goes on with it, although another one has written its log since."""

    def chain(self: Any, index: DelayIndex) -> Chain | None:
        found = original(self, index)
        return None if found is None else _AnyChain(*found)

    original = Chains.get
    with replaced(Chains, "get", chain):
        yield


@contextmanager
def names_no_ledger_before() -> Iterator[None]:
    """An earlier fault: the local data named no log before its pointer was known to be written."""

    async def may_count(self: Any, index: DelayIndex, ledger_id: int, home: str) -> None:
        """Tell nobody."""

    with replaced(IndexLogs, "_may_count", may_count):
        yield


@contextmanager
def waiting_counts() -> Iterator[None]:
    """Records that wait for an index log count as in it."""
    with replaced(LogWriter, "since_ns", property(lambda self: self._dirty_ns)):
        yield


@contextmanager
def forgotten_beside_a_snapshot() -> Iterator[None]:
    """Changes during an index log's snapshot are missing in the log."""

    def note(self: Any, noted: Noted) -> None:
        if self._next_waiting is None:
            original(self, noted)

    original = LogWriter.note
    with replaced(LogWriter, "note", note):
        yield


@contextmanager
def waits_without_a_bound() -> Iterator[None]:
    """Everything that waits for an index log is kept, however much."""

    def put(self: Any, noted: Noted) -> None:
        self._noted.append(noted)
        self.size_bytes += noted.size_bytes

    with replaced(Waiting, "put", put):
        yield


@contextmanager
def landed_without_a_mark() -> Iterator[None]:
    """The simulator's own find: blocks of a log being read at a crash stayed on the disk."""

    def init(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        self._batch = Batch()

    original = Landing.__init__
    with replaced(Landing, "__init__", init):
        yield


@contextmanager
def end_of_another_append() -> Iterator[None]:
    """The simulator's own find: in a store of objects, an abandoned append took its end from the one before,
    for which it waited.
    """

    async def append(self: Any, ledger_id: int, entry: bytes) -> int:
        written = self._written.get(ledger_id)
        if written is None:
            raise NoLedgerError(f"ledger {ledger_id} is not written here")
        number, written.count = written.count, written.count + 1
        before, ended = written.last, asyncio.get_running_loop().create_future()
        written.last = ended
        try:
            await self._make(self._entry(ledger_id, number), entry)
            if before is not None:
                await before
            if written.failure is not None:
                raise AwayError("an append has failed")
        except BaseException as error:
            written.failure = error
            raise
        finally:
            ended.set_result(None)
        return cast("int", number)

    with replaced(ObjectHome, "append", append):
        yield


@contextmanager
def last_object_not_read() -> Iterator[None]:
    """The last entry of an index log in a store of objects passes for the fence after it."""

    async def open_log(self: Any, ledger_id: int) -> int:
        return await original(self, ledger_id) - 1

    original = ObjectHome.open
    with replaced(ObjectHome, "open", open_log):
        yield


@contextmanager
def acknowledgements_gone() -> Iterator[None]:
    """An index that gave way to its log, which was behind, took along its acknowledgements."""
    with replaced(restorer, "last_words", lambda former, index, request: LastWords()):
        yield


@contextmanager
def looked_for_elsewhere() -> Iterator[None]:
    """The simulator's own fault: indexes were restored from another store than their logs'."""

    async def open_log(self: Any, ledger_id: int) -> int:
        raise NoLedgerError(f"there is no ledger {ledger_id}")

    with replaced(ObjectHome, "open", open_log):
        yield


@contextmanager
def chain_must_be_readable() -> Iterator[None]:
    """A disk unreadable at that moment ended the connection of a broker that opened a subscription."""

    def chain(self: Any, index: DelayIndex) -> Chain | None:
        known = self._set.get(index)
        if known is not None:
            return cast("Chain", known)
        value = self._store.get(keys.subscription_key(keys.CHAIN, index.own_journal.subscription_id))
        return None if value is None else Chain.decode(value)

    with replaced(Chains, "get", chain):
        yield


@contextmanager
def brings_what_was_dropped() -> Iterator[None]:
    """The simulator's own find: a fetch went on with blocks dropped while the bookies were away."""
    with replaced(BlockFetch, "_still_absent", lambda self, blocks: list(blocks)):
        yield


@contextmanager
def places_of_another_owners_ledgers() -> Iterator[None]:
    """The simulator's own find: an index went on under another owner's pointer, whose log could not be read,
    and kept places in ledgers that the other one had deleted, and that the pointer still named.
    """

    def places_in(self: Any, home: Home, index: DelayIndex, pointer_text: str) -> Places:
        before = dict(self._places.get(index, ("", {}))[1])
        places: Places = original(self, home, index, pointer_text)
        named = of_home(pointer_text, home.kind).ledgers
        places.update({key: place for key, place in before.items() if place.ledger_id in named})
        return places

    original = Fetches.places_in
    with replaced(Fetches, "places_in", places_in):
        yield


@contextmanager
def absent_blocks_left_out() -> Iterator[None]:
    """A log that begins while blocks are absent does not name them."""

    def init(self: Any, store: Store, subscription_id: int, places: Places | None = None) -> None:
        original(self, store, subscription_id)

    original = Snapshot.__init__
    with replaced(Snapshot, "__init__", init):
        yield


@contextmanager
def written_for_ever() -> Iterator[None]:
    """A daemon goes on writing a log taken by another owner."""

    async def guarded(self: Any, do: Callable[[], Awaitable[None]]) -> None:
        await original(self, do)
        self.over = False

    original = StreamLog._guarded
    with replaced(StreamLog, "_guarded", guarded):
        yield


@contextmanager
def nobody_is_asked() -> Iterator[None]:
    """Every broker passes for gone."""

    async def ask(self: Any, stream_id: int, request: LogRequest) -> LogAnswer:
        raise RefusedError("the broker is gone")

    with replaced(LogRequests, "ask", ask):
        yield


@contextmanager
def appended_to_for_ever() -> Iterator[None]:
    """A log continues after a failed append, without its writes."""

    def leave(self: Any) -> None:
        if sys._getframe(1).f_code.co_name != "ship":
            original(self)

    original = LogWriter._leave
    with replaced(LogWriter, "_leave", leave):
        yield


@contextmanager
def gives_way_to_any_log() -> Iterator[None]:
    """Sound local data gives way to a log of another history, which is emptied then."""
    with replaced(restorer, "does_not_give_way", lambda former, index, request: None):
        yield
