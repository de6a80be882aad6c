"""The fetches of one daemon: of the absent blocks of each index that has a stream.

Invariants:

- an index has one fetch at a time, for its latest stream;
- at most ``RECORDS_AT_ONCE`` records are read at a time, for the memory that they take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from tidegate.index import Catalog, Clock, DelayIndex, TappedStore
from tidegate.index.log import NO_LEDGER, Home, HomeError, Places, RefusedError, block_ids, of_home
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.homes.homes import Homes
from tidegate.plugin.daemon.index_logs.block_fetch import BlockFetch
from tidegate.plugin.daemon.index_logs.log_failures import LogFailures
from tidegate.plugin.daemon.stream import Stream
from tidegate.plugin.wire.messages import Open

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

RECORDS_AT_ONCE = 8
REFUSED_SECONDS = 1.0  # a longer refusal has another cause than the stream's end


class Fetches:
    """One daemon's fetches, and the known places of its indexes' blocks.

    spawn: makes a task. whole: called with an index when all its blocks are here and none is lost. landed:
    called with an index when some of its blocks are here.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: TappedStore,
        clock: Clock,
        homes: Homes,
        *,
        executor: Executor,
        spawn: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        whole: Callable[[DelayIndex], None],
        failures: LogFailures,
        log: Logger,
    ) -> None:
        self.landed: Callable[[DelayIndex], None] = lambda _: None
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._homes = homes
        self._executor = executor
        self._spawn = spawn
        self._whole = whole
        self._failures = failures
        self._log = log
        self._at_once = asyncio.Semaphore(RECORDS_AT_ONCE)
        self._places: WeakKeyDictionary[DelayIndex, tuple[str, Places]] = WeakKeyDictionary()
        """The home of an index's blocks, and their places there."""
        self._looked: WeakSet[DelayIndex] = WeakSet()
        self._running: dict[DelayIndex, tuple[Stream, asyncio.Task[None]]] = {}

    def restored(self, index: DelayIndex, home_kind: str, places: Places) -> None:
        """Note an index with its blocks in these places."""
        self._places[index] = home_kind, places

    def is_elsewhere(self, home: Home, index: DelayIndex) -> bool:
        """True if an index's blocks are known to lie in another home."""
        return self._places.get(index, (home.kind,))[0] != home.kind

    def places_in(self, home: Home, index: DelayIndex, pointer_text: str) -> Places:
        """The known places of the blocks in a home; its writer updates them."""
        if self.is_elsewhere(home, index):
            if index.upkeep.absent_blocks:
                return {}
            del self._places[index]
        places = self._places.setdefault(index, (home.kind, {}))[1]
        pointer = of_home(pointer_text, home.kind)
        chain = self._catalog.chains.get(index)
        # Another owner, unable to read the log, has deleted the ledgers no longer named, and perhaps some
        # that the pointer still names until its next change.
        is_ours = chain is not None and chain.has(pointer.ledger_id, home.kind)
        for (key, place), block_id in zip(list(places.items()), block_ids(places), strict=True):
            if place.ledger_id not in pointer.ledgers or not (is_ours or index.upkeep.is_absent(block_id)):
                del places[key]
        return places

    def begin(
        self, stream: Stream, requests: LogRequests, stream_id: int, request: Open
    ) -> asyncio.Task[None] | None:
        """Continue fetching the absent blocks; None without any."""
        index = stream.session.index
        self.stop(index)
        if not index.upkeep.absent_blocks:
            chain = self._catalog.chains.get(index)
            if chain is not None and chain.ledger_id == NO_LEDGER and index not in self._looked:
                # The daemon died before all blocks were here, and the log is unavailable.
                self._looked.add(index)
                index.upkeep.look_for_lost()
            return None
        kind, places = self._places[index]
        try:
            home = self._homes.named(kind, requests, stream_id, request)
        except RefusedError as error:
            self._lose(stream, index, error)
            return None
        fetch = BlockFetch(
            index,
            places,
            home,
            catalog=self._catalog,
            store=self._store,
            clock=self._clock,
            executor=self._executor,
            at_once=self._at_once,
            landed=self._tell_landed,
            log=self._log,
        )
        task = self._spawn(self._bring(fetch, stream, index))
        self._running[index] = stream, task
        return task

    def _tell_landed(self, index: DelayIndex) -> None:
        self.landed(index)

    async def _bring(self, fetch: BlockFetch, stream: Stream, index: DelayIndex) -> None:
        lost = 1
        try:
            lost = await fetch.run()
        except HomeError as error:
            # The end of the stream cancels this, and the next stream continues.
            await asyncio.sleep(REFUSED_SECONDS)
            self._lose(stream, index, error)
        except Exception as error:
            self._failures.report_bug(stream.name, error)
            self._lose(stream, index, error)
        self.landed(index)
        if not lost:
            # Else with the next log: a start before the lost blocks were found reads this one again.
            self._whole(index)

    def _lose(self, stream: Stream, index: DelayIndex, error: Exception) -> None:
        """Note that the absent blocks will not come."""
        if self._catalog.get(index.name) is index:
            self._failures.report(
                stream.name, "blocks of an index cannot be reached, their messages are read again", error
            )
            index.upkeep.lose_absent(index.upkeep.absent_in_order(), f"cannot be read: {error}")

    def stop(self, index: DelayIndex, stream: Stream | None = None) -> None:
        """Fetch nothing more for any stream, or for this one."""
        found = self._running.get(index)
        if found is not None and stream in (None, found[0]):
            del self._running[index]
            found[1].cancel()
