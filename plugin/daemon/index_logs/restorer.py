"""Restores an index from its log, before the stream that asks for it opens.

Invariants:

- only the answer to OPEN waits for a log; reading one takes ``RESTORE_SECONDS`` at most, however long others
  were read before it; a home that is away is asked again until then; an unreadable log costs reading the
  topic, and says so;
- many short logs are read at a time, because streams wait for them, and few long ones, for the memory they
  take;
- data written here from an unneeded or unreadable log is abandoned: the former index stays, and no start
  finds the rest;
- a log counts more than the local data unless the data is known to have all of it (its ``chain``) and is
  whole, or a stream has continued with the data since it was not whole;
- the news of the local data outlasts it, see `last_words`; of two histories the cursor's stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.index import (
    UNCLAIMED,
    Catalog,
    Chain,
    Clock,
    DelayIndex,
    Identity,
    SubscriptionName,
    TappedStore,
    TidegateIndexError,
    UnreadableLogError,
)
from tidegate.index.log import (
    NO_LEDGER,
    Home,
    HomeError,
    Landing,
    Patient,
    Places,
    Pointer,
    RefusedError,
    block_ids,
    named_places,
    read_log,
)
from tidegate.plugin.daemon.homes.broker_home import LogRequests
from tidegate.plugin.daemon.homes.homes import Homes
from tidegate.plugin.daemon.index_logs.last_words import LastWords, does_not_give_way, last_words, take_over
from tidegate.plugin.daemon.index_logs.turns import Turns
from tidegate.plugin.telemetry.metrics import Metrics
from tidegate.plugin.wire.messages import Open

if TYPE_CHECKING:
    from tidegate.plugin.daemon.logs import Logger

RESTORE_SECONDS = 8.0  # after ten the shim decides alone
AT_ONCE_MAX = 32
LONG_AT_ONCE_MAX = 4
LONG_BYTES = 1 << 20
ASK_AGAIN_SECONDS = 0.25
NS_PER_SECOND = 1_000_000_000


def restore_deadline() -> asyncio.Timeout:
    """A restoration's limit: the answer to OPEN can wait no longer."""
    return asyncio.timeout(RESTORE_SECONDS)


class _Admitted:
    """`Spill` that waits for a turn at long logs once its log proves long."""

    def __init__(self, landing: Landing, become_long: Callable[[], Awaitable[None]]) -> None:
        self.apply_operation = landing.apply_operation
        self._landing = landing
        self._become_long = become_long
        self._long = False

    async def drain(self, read_bytes: int) -> None:
        """See `Spill`."""
        if read_bytes > LONG_BYTES and not self._long:
            self._long = True
            await self._become_long()
        await self._landing.drain(read_bytes)


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """A broker's opening of a subscription with its index perhaps in a log.

    requests, stream_id: for requests to that broker. is_wanted: true if the stream may still open after the
    log is read; else the present index stays. came: called with the index once in the catalog, still without
    a stream.
    """

    requests: LogRequests
    stream_id: int
    opening: Open
    is_wanted: Callable[[], bool]
    came: Callable[[DelayIndex], None]

    @property
    def identity(self) -> Identity:
        """The subscription and its life."""
        return Identity(
            SubscriptionName(self.opening.topic, self.opening.subscription), self.opening.incarnation
        )


@dataclass(frozen=True, slots=True)
class Restored:
    """An index from its log, without a stream yet.

    former: its predecessor. chain: the log that it has all of, or all but the ``more``. places: of blocks
    still to be brought.
    """

    index: DelayIndex
    former: DelayIndex | None
    chain: Chain
    places: Places
    more: bool


class Restorer:
    """Reads index logs into the catalog. ``executor`` writes their contents into the store.

    restored: called with each restored index. commit_soon: called after a deletion that came in no frame.
    """

    def __init__(
        self,
        catalog: Catalog,
        store: TappedStore,
        clock: Clock,
        homes: Homes,
        *,
        executor: Executor,
        restored: Callable[[Restored], None],
        commit_soon: Callable[[], None],
        metrics: Metrics,
        log: Logger,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._homes = homes
        self._executor = executor
        self._turns = Turns(AT_ONCE_MAX, RESTORE_SECONDS)
        self._long_turns = Turns(LONG_AT_ONCE_MAX, RESTORE_SECONDS)
        self._restored = restored
        self._commit_soon = commit_soon
        self._metrics = metrics
        self._log = log

    def restoring(self, request: RestoreRequest) -> Awaitable[None] | None:
        """The reading of the log, to await before opening the stream; None without anything to read."""
        name, incarnation = request.identity
        try:
            pointer = Pointer.parse(request.opening.log_pointer)
        except UnreadableLogError as error:
            self._unreadable(name, str(error))
            return None
        if pointer is None or pointer.ledger_id == NO_LEDGER:
            return None
        index = self._catalog.get(name)
        if index is not None and index.incarnation == incarnation:
            chain = self._catalog.chains.get(index)
            if index.damaged or (chain is not None and not chain.whole):
                self._log.warning(
                    "the local data of an index is damaged, its log is read instead",
                    topic=name.topic,
                    subscription=name.subscription,
                )
            elif chain is not None and chain.has(pointer.ledger_id, pointer.home):
                return None  # this daemon has made all later writes
        try:
            home = self._homes.named(pointer.home, request.requests, request.stream_id, request.opening)
        except RefusedError as error:
            self._unreadable(name, str(error))
            return None
        return self._restore(home, pointer, request)

    async def _restore(self, home: Home, pointer: Pointer, request: RestoreRequest) -> None:
        begin_ns = self._clock.monotonic_ns()
        identity = request.identity
        chain = Chain(pointer.ledger_id, pointer.home)
        landing = Landing(
            self._store.untapped,
            self._catalog.reserve_id(),
            Chain(NO_LEDGER, pointer.home),
            executor=self._executor,
            abandon=self._abandon,
        )
        adopted = False
        patient = Patient(home, lambda: asyncio.sleep(ASK_AGAIN_SECONDS))
        try:
            async with self._turns, contextlib.AsyncExitStack() as long, restore_deadline() as deadline:

                async def become_long() -> None:
                    deadline.reschedule(None)
                    await long.enter_async_context(self._long_turns)
                    deadline.reschedule(asyncio.get_running_loop().time() + RESTORE_SECONDS)

                spill = _Admitted(landing, become_long)
                log = await read_log(patient, pointer.ledger_id, identity, spill)
                read_ns = self._clock.monotonic_ns()
                await landing.finish(log)
            if not request.is_wanted():
                # The acknowledged durability of that stream's changes must not be lost.
                self._in_vain(identity.name, "another stream has taken the index")
                return
            places = named_places(log.content)
            former = self._catalog.get(identity.name)
            chain = chain.replacing(self._chain_of(former, identity))
            index = self._catalog.landed(landing.subscription_id, identity, block_ids(places))
            try:
                words = self._take_in(index, request.opening)
            finally:
                # Whatever fails, the index in the catalog must not be abandoned.
                adopted = self._catalog.get(identity.name) is index
            if words is None:
                return
            self._restored(Restored(index, former, chain, places, words.changes))
            request.came(index)
        except TimeoutError as error:
            last = "" if patient.last is None else f": {patient.last}"
            self._unreadable(
                identity.name, str(error) or f"it was not read within {RESTORE_SECONDS:g} s{last}"
            )
            return
        except (HomeError, TidegateIndexError) as error:
            self._unreadable(identity.name, str(error))
            return
        except asyncio.CancelledError:
            self._in_vain(
                identity.name, "the broker has gone, opens it again, or has read so far that it needs no log"
            )
            raise
        finally:
            if not adopted:
                landing.give_up()
        self._say_forgotten(identity.name, words)
        took_s = (self._clock.monotonic_ns() - begin_ns) / NS_PER_SECOND
        self._metrics.index_log_restored.inc()
        self._metrics.index_log_restore_seconds.observe(took_s)
        if log.damage:
            self._log.warning(
                "the end of an index log cannot be read, the rest is read from the topic",
                topic=identity.name.topic,
                subscription=identity.name.subscription,
                damage=log.damage,
            )
        self._log.info(
            "the index was restored from its log",
            topic=identity.name.topic,
            subscription=identity.name.subscription,
            held=len(index.state.held),
            acknowledged_since=len(words.acknowledged),
            blocks_to_come=index.upkeep.absent_blocks,
            log_bytes=log.size_bytes,
            log_entries=log.entries,
            read_seconds=round((read_ns - begin_ns) / NS_PER_SECOND, 3),
            seconds=round(took_s, 3),
        )

    def _chain_of(self, former: DelayIndex | None, identity: Identity) -> Chain | None:
        if former is None or former.incarnation != identity.incarnation:
            return None
        return self._catalog.chains.get(former)

    def _take_in(self, index: DelayIndex, opening: Open) -> LastWords | None:
        """Replace the local data by the log's index; None if the local data stays."""
        former = self._catalog.get(index.name)
        another = does_not_give_way(former, index, opening)
        if another is not None:
            self._catalog.abandon(index)
            self._unreadable(index.name, f"it is of another history than the cursor: {another.value}")
            return None
        self._say_unclaimed(former)
        words = last_words(former, index, opening)
        self._catalog.adopt(index)
        if former is not None:
            take_over(index, former, words)
        return words

    def _say_unclaimed(self, former: DelayIndex | None) -> None:
        if former is not None and former.incarnation == UNCLAIMED and not former.state.empty:
            self._log.warning(
                "the index log replaces entries put in before the subscription was opened",
                topic=former.name.topic,
                subscription=former.name.subscription,
                held=len(former.state.held),
            )

    def _say_forgotten(self, name: SubscriptionName, words: LastWords) -> None:
        if words.undone is not None:
            self._log.warning(
                "Pulsar was put back to an earlier state, or unloaded the topic amid a seek, since the index"
                " log was written: none of its acknowledgements counts",
                topic=name.topic,
                subscription=name.subscription,
                reason=words.undone.value,
            )
        if words.taken_back:
            self._log.warning(
                "acknowledgements of a log do not count, a later owner held these: they may come again",
                topic=name.topic,
                subscription=name.subscription,
                forgotten=len(words.taken_back),
            )
        if words.forgotten:
            self._log.warning(
                "acknowledgements of this daemon alone do not count any more: messages may come again",
                topic=name.topic,
                subscription=name.subscription,
                forgotten=len(words.forgotten),
                reason=words.why,
            )

    def _abandon(self, subscription_id: int) -> None:
        self._catalog.abandon_id(subscription_id)
        self._commit_soon()

    def _unreadable(self, name: SubscriptionName, why: str) -> None:
        self._metrics.index_log_unreadable.inc()
        self._log.warning(
            "the index log cannot be read, the topic is read again where this daemon does not know it",
            topic=name.topic,
            subscription=name.subscription,
            reason=why,
        )

    def _in_vain(self, name: SubscriptionName, why: str) -> None:
        self._log.info(
            "the index log is no longer needed",
            topic=name.topic,
            subscription=name.subscription,
            reason=why,
        )
