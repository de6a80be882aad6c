"""Writes an index log into the store while reading it, under an id that no subscription has yet: so a log of
any length takes little memory. Nothing is synced here; the next commit makes everything durable.

Invariants: at most one write is under way; in the end the id is adopted or abandoned, and abandoned only once
no thread writes under it. The first write has a chain, by which recovery finds and deletes the blocks of a
crash. It names no ledger, so the data does not count before `adopt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.log.reader import LogText
from tidegate.index.log.restore import restoration
from tidegate.index.store import Batch, Store

PIECE_BYTES = 1 << 20


class Landing:
    """`Spill` for one log. abandon: called once, from the loop, if the reading fails."""

    def __init__(
        self,
        store: Store,
        subscription_id: int,
        chain: Chain,
        *,
        executor: Executor,
        abandon: Callable[[int], None],
    ) -> None:
        self.subscription_id = subscription_id
        self._store = store
        self._executor = executor
        self._abandon = abandon
        self._batch = Batch()
        self._batch.put(keys.subscription_key(keys.CHAIN, subscription_id), chain.encode())
        self._writing: asyncio.Future[None] | None = None

    def apply_operation(self, kind: int, key: bytes, value: bytes) -> None:
        """See `Spill`."""
        whole = keys.unstripped(key, self.subscription_id)
        if kind == Batch.PUT:
            self._batch.put(whole, value)
        elif kind == Batch.DELETE:
            self._batch.delete(whole)
        else:
            # A range ends with the subscription, even if the log says otherwise.
            _, last = keys.subscription_range(keys.BLOCK, self.subscription_id)
            self._batch.delete_range(whole, min(last, keys.unstripped(value, self.subscription_id)))

    async def drain(self, read_bytes: int) -> None:  # noqa: ARG002
        """See `Spill`."""
        if self._batch.size_bytes >= PIECE_BYTES:
            await self._begin_write()

    async def finish(self, log: LogText) -> None:
        """Write the rest. Raises StorageError."""
        await self._begin_write()
        for batch in restoration(log.content, self.subscription_id, PIECE_BYTES):
            self._batch = batch
            await self._begin_write()
        await self._written()

    def give_up(self) -> None:
        """Abandon the landing, without waiting for a thread that is still writing."""
        if self._writing is None:
            self._abandon(self.subscription_id)
        elif self._writing.done():
            self._end(self._writing)
        else:
            self._writing.add_done_callback(self._end)

    def _end(self, written: asyncio.Future[None]) -> None:
        if not written.cancelled():
            written.exception()  # it has no waiter; another part reports the reading's failure
        self._abandon(self.subscription_id)

    async def _begin_write(self) -> None:
        await self._written()
        batch, self._batch = self._batch, Batch()
        if len(batch):
            write = partial(self._store.write, batch, sync=False)
            self._writing = asyncio.get_running_loop().run_in_executor(self._executor, write)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)
