"""The blocks of an index restored from its log: fetched record after record, in due order.

The stream is open meanwhile, and absent entries count as held; a due entry waits for its own block only.

Invariants:

- a block counts as here only when written, and a start believes the blocks only when all are here;
- an unreadable block is as good as corrupt: its positions are read from the topic. A home without an answer
  has ``GIVE_UP_SECONDS`` to come back; a disk that accepts no writes has for ever;
- records not due soon wait a moment: the broker, its code still cold, is handing out due entries.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING

from tidegate.index import (
    Batch,
    Catalog,
    Clock,
    DelayIndex,
    StorageError,
    TappedStore,
    UnreadableLogError,
)
from tidegate.index.log import (
    AwayError,
    BlockRecord,
    Home,
    HomeError,
    NoLedgerError,
    Places,
    StoredBlock,
    by_record,
    read_record,
    writes,
)

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

GIVE_UP_SECONDS = 30.0
RETRY_SECONDS = 0.5
SOON_MS = 60_000
REST_SECONDS = 1.0
NS_PER_SECOND = 1_000_000_000


class BlockFetch:
    """Brings the absent blocks of one index, for one stream.

    places: of the blocks. home: of these places. at_once: shared by all. landed: called when some blocks are
    here.
    """

    def __init__(
        self,
        index: DelayIndex,
        places: Places,
        home: Home,
        *,
        catalog: Catalog,
        store: TappedStore,
        clock: Clock,
        executor: Executor,
        at_once: asyncio.Semaphore,
        landed: Callable[[DelayIndex], None],
        log: Logger,
    ) -> None:
        self._index = index
        self._places = places
        self._home = home
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._executor = executor
        self._at_once = at_once
        self._landed = landed
        self._log = log
        self._last_entries: dict[int, int] = {}
        """Last entries of the open ledgers."""
        self._away_ns: int | None = None
        """Time since which the home is silent."""
        self._said: set[str] = set()

    async def run(self) -> int:
        """Return the number of lost blocks when none is absent any more, or the index was replaced.

        Raises HomeError if this stream cannot use the home.
        """
        begin_ns = self._clock.monotonic_ns()
        count = self._index.upkeep.absent_blocks
        lost = 0
        rested = False
        plan = by_record(self._places, self._index.upkeep.absent_in_order())
        for record, planned in plan.items():
            due_at_ms = planned[0][1].first[0]
            if not rested and due_at_ms > self._clock.now_ms() + SOON_MS:
                await asyncio.sleep(REST_SECONDS)
                rested = True
            if not self._still_absent(planned):
                continue
            try:
                if record is None:
                    raise UnreadableLogError("their place is unknown")
                lost += await self._bring(record, planned)
            except (UnreadableLogError, NoLedgerError) as error:
                if not self._is_current:
                    return lost
                blocks = self._still_absent(planned)
                if not blocks:  # dropped meanwhile, and the ledger with them
                    continue
                self._say(
                    "blocks of an index cannot be read where its log says, their messages are read again",
                    error,
                )
                lost += len(blocks)
                self._index.upkeep.lose_absent(blocks, f"cannot be read: {error}")
                self._landed(self._index)
            if not self._is_current:
                return lost
        for ledger_id in self._last_entries:
            with contextlib.suppress(HomeError):
                await self._home.close(ledger_id)
        self._log.info(
            "all blocks of a restored index have arrived",
            topic=self._index.name.topic,
            subscription=self._index.name.subscription,
            blocks=count - lost,
            lost=lost,
            seconds=round((self._clock.monotonic_ns() - begin_ns) / NS_PER_SECOND, 3),
        )
        return lost

    def _still_absent(self, blocks: list[StoredBlock]) -> list[StoredBlock]:
        return [each for each in blocks if self._index.upkeep.is_absent(each[1].block_id)]

    async def _bring(self, record: BlockRecord, planned: list[StoredBlock]) -> int:
        """Read a record and write its blocks that are still absent; returns the number of lost ones.

        Raises UnreadableLogError, HomeError.
        """
        while blocks := self._still_absent(planned):
            try:
                async with self._at_once:
                    lost = await self._read_and_write(record, blocks)
                self._away_ns = None
                return lost
            except AwayError as error:
                now_ns = self._clock.monotonic_ns()
                self._away_ns = now_ns if self._away_ns is None else self._away_ns
                if now_ns - self._away_ns > GIVE_UP_SECONDS * NS_PER_SECOND:
                    raise AwayError(f"not within {GIVE_UP_SECONDS:g} s: {error}") from error
                self._last_entries.clear()
                self._say("blocks of an index cannot be read from its log, trying again", error)
            except StorageError as error:
                self._say("blocks of an index cannot be written, trying again", error)
            await asyncio.sleep(RETRY_SECONDS)
        return 0

    async def _read_and_write(self, record: BlockRecord, blocks: list[StoredBlock]) -> int:
        last = self._last_entries.get(record.ledger_id)
        if last is None:
            last = self._last_entries[record.ledger_id] = await self._home.open(record.ledger_id)
        found = await read_record(self._home, record, last)
        batch, missing = writes(found, self._index.own_journal.subscription_id, blocks)
        await self._write(batch)
        missing = self._still_absent(missing)
        if missing and self._is_current:
            self._index.upkeep.lose_absent(missing, "is not where the index log says")
            self._landed(self._index)
        return len(missing)

    async def _write(self, batch: Batch) -> None:
        if not len(batch):
            return
        write = partial(self._store.untapped.write, batch, sync=False)
        writing = asyncio.get_running_loop().run_in_executor(self._executor, write)
        stored = [key for _, key, _ in batch.operations]
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(partial(self._written_late, stored))
            raise
        self._written(stored)

    def _written_late(self, stored: list[bytes], writing: asyncio.Future[None]) -> None:
        if not writing.cancelled() and writing.exception() is None:
            self._written(stored)

    @property
    def _is_current(self) -> bool:
        return self._catalog.get(self._index.name) is self._index

    def _written(self, stored: list[bytes]) -> None:
        if self._is_current:
            self._index.upkeep.land(stored)
            self._landed(self._index)
        else:
            self._catalog.abandon_id(self._index.own_journal.subscription_id)

    def _say(self, what: str, error: Exception) -> None:
        if what not in self._said:
            self._said.add(what)
            self._log.warning(
                what,
                topic=self._index.name.topic,
                subscription=self._index.name.subscription,
                error=str(error),
            )
