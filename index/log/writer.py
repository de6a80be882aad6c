"""Writes an index log: one ledger after another, each a snapshot and then all writes since.

The caller notes the store's writes (`note`), calls `ship` from time to time, and does pauses and retries. A
failed append, or too much waiting, abandons the ledger, and the next `ship` begins another one with a
snapshot. A ledger that is only too long continues until the next one counts, for an owner taking over
meanwhile. Many blocks go into ledgers of their own (`places`); the next log and the next owner's name these
again at almost no cost.

Invariants:

- the content of a ledger up to any record is a state that the store has had, or that a crash could have left;
- at most one `ship` is under way;
- the pointer names every ledger made here, from its making to its deletion, and every ledger of blocks in
  which the log names places;
- a place is appended to the log only after its block;
- no ledger is deleted that may count because a pointer's write, also a former writer's, was not answered, nor
  a ledger of blocks that such a ledger names;
- before a pointer to a log is written, the local data says that it has all of that log, and so knows the log
  as its own after a kill;
- blocks appended for a former log while the next one begins belong to the former only: `places` lacks them;
- at most `queue_bytes` and one write wait for a ledger.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from tidegate.index.entries.checks import require
from tidegate.index.format import keys
from tidegate.index.format.manifest import Identity
from tidegate.index.log.home import AwayError, Home, HomeError, StalePointerError
from tidegate.index.log.ledger_writer import LedgerWriter
from tidegate.index.log.log_options import LogOptions
from tidegate.index.log.places import Places, forget_ledger, ledgers_of, wasteful_ledgers
from tidegate.index.log.pointer import NO_LEDGER, Pointer, of_home
from tidegate.index.log.records import (
    GRAMMAR_VERSION,
    PLACE,
    PLACES_VERSION,
    EntryKind,
    encode_operations,
)
from tidegate.index.log.snapshot import Snapshot
from tidegate.index.log.tap import Noted, Operation, TappedStore
from tidegate.index.log.waiting import Waiting
from tidegate.index.store import Batch

_UNANSWERED_MAX = 16
_DEAD_NAMES_MAX = 8
"""Most deleted ledgers that the pointer may still name."""

ResultT = TypeVar("ResultT")


class Offload(Protocol):
    """Runs blocking work in another thread."""

    def __call__(self, work: Callable[[], ResultT]) -> Awaitable[ResultT]:
        """The result of `work`."""
        ...


class LogWriter:
    """Writes the index log of one subscription, on behalf of one owner.

    text: the pointer in the cursor. dirty_ns: since when the store may have changes that no log has, None if
    it has none. catch_up: brings all noted writes of the store to `note`. may_count: called with a ledger
    that the pointer may soon name; on return the local data says so durably. chained: called with the ledger
    that has all of the local data, once the pointer names it. damaged: called with the keys of damaged stored
    values, which are not in the log. block_bytes: returns the size of the subscription's blocks. places:
    known places of blocks; changed here. complete: tells if all blocks are in the store. in_doubt: pointers
    that may yet replace `text` in the cursor.
    """

    def __init__(
        self,
        identity: Identity,
        subscription_id: int,
        home: Home,
        store: TappedStore,
        text: str,
        *,
        options: LogOptions,
        dirty_ns: int | None,
        random: Callable[[], int],
        offload: Offload,
        catch_up: Callable[[], None],
        may_count: Callable[[int], Awaitable[None]],
        chained: Callable[[int], None],
        damaged: Callable[[list[bytes]], None],
        block_bytes: Callable[[], int],
        places: Places,
        complete: Callable[[], bool],
        in_doubt: Iterable[Pointer] = (),
    ) -> None:
        self.pointer_text = text
        """The pointer believed to stand in the cursor."""
        self.written_bytes = 0
        """Bytes of everything appended."""
        self._identity = identity
        self._subscription_id = subscription_id
        self._home = home
        self._store = store
        pointer = of_home(text, home.kind)
        self._unanswered: deque[Pointer] = deque(in_doubt, maxlen=_UNANSWERED_MAX)
        """Pointers that may stand in the cursor instead: their writes are unanswered."""
        self._current = pointer.ledger_id
        self._others = set(pointer.others)
        self._options = options
        self._random = random
        self._offload = offload
        self._catch_up = catch_up
        self._may_be_named = may_count
        self._chained = chained
        self._damaged = damaged
        self._block_bytes = block_bytes
        self._places = places
        self._complete = complete
        self._blocks: LedgerWriter | None = None
        """The ledger for blocks; None if they go into the log itself."""
        self._dirty_ns = dirty_ns
        self._ledger: LedgerWriter | None = None
        """The log that counts, as long as it continues."""
        self._waiting = Waiting(options.queue_bytes)
        """For `_ledger`."""
        self._next_waiting: Waiting | None = None
        """Writes since the snapshot of the next ledger, while it begins."""
        self._may_switch = False
        """True while the pointer may name that ledger already: its change is under way."""
        self._snapshot_bytes = 0
        self._snapshot_entries = 0

    # ---- noting

    def note(self, noted: Noted) -> None:
        """Take a write of the store."""
        for kind, key, _ in noted.operations:
            if kind == Batch.PUT and key[:1] == keys.BLOCK:
                self._places.pop(key, None)  # a place, if any, has another block
        if self._next_waiting is not None:
            self._next_waiting.put(noted)
        if self._ledger is None:
            # A snapshot will have this write.
            if self._dirty_ns is None:
                self._dirty_ns = noted.written_ns
            return
        self._waiting.put(noted)
        if self._waiting.full:
            self._leave()

    @property
    def since_ns(self) -> int | None:
        """Time of the oldest write not known to be in the log; None if there is none."""
        times = [self._dirty_ns, self._waiting.since_ns]
        if self._may_switch and self._next_waiting is not None:
            times.append(self._next_waiting.since_ns)
        return min((at for at in times if at is not None), default=None)

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be appended, without those that go into a snapshot only."""
        next_bytes = 0 if self._next_waiting is None else self._next_waiting.size_bytes
        return max(self._waiting.size_bytes, next_bytes)

    @property
    def ledger_id(self) -> int:
        """The ledger that counts, NO_LEDGER before there is one."""
        return self._current

    @property
    def in_doubt(self) -> tuple[Pointer, ...]:
        """Pointers that may yet stand in the cursor, without another write from here."""
        return tuple(self._unanswered)

    @property
    def ledger_bytes(self) -> int:
        """Bytes in the ledger being written, 0 without one."""
        return 0 if self._ledger is None else self._ledger.size_bytes

    @property
    def wants_to_ship(self) -> bool:
        """True if `ship` has something to do."""
        unsettled = self._ledger is None and bool(self._unanswered)
        return self.since_ns is not None or self._too_long or unsettled

    @property
    def begins(self) -> bool:
        """True if the next `ship` with something to do begins another ledger."""
        return self._ledger is None or self._too_long

    @property
    def _too_long(self) -> bool:
        if self._ledger is None:
            return False
        tail_bytes = self._ledger.size_bytes - self._snapshot_bytes
        if self._ledger.entries - self._snapshot_entries > self._home.tail_entries_max:
            return True
        return tail_bytes > max(self._options.tail_bytes, self._options.tail_snapshots * self._snapshot_bytes)

    def _leave(self) -> None:
        """Abandon the log: only a snapshot, with all waiting writes, helps now."""
        self._dirty_ns = self.since_ns
        self._ledger = None
        self._blocks = None
        self._waiting = Waiting(self._options.queue_bytes)

    def check(self) -> None:
        """Raise CheckError if an invariant is broken. May be called during a `ship`."""
        named = self._others | {self._current}
        self._waiting.check()
        if self._next_waiting is not None:
            self._next_waiting.check()
        require(self._ledger is not None or self._waiting.since_ns is None, "writes wait for no ledger")
        require(self._ledger is None or self._dirty_ns is None, "a ledger continues that lacks a write")
        require(self._ledger is None or self._ledger.ledger_id == self._current, "another ledger counts")
        require(self._blocks is None or self._blocks.ledger_id in named, "no pointer has the blocks' ledger")
        require(ledgers_of(self._places) <= named, "blocks lie in ledgers that no pointer names")

    # ---- shipping

    async def ship(self) -> None:
        """Bring the log up to date.

        Raises HomeError, StorageError, CorruptRecordError, and the errors of `may_count`: then call again
        later.
        """
        if self._ledger is None or self._too_long:
            if self.wants_to_ship:
                await self._begin()
            return
        try:
            await self._put_waiting(self._waiting, self._ledger, self._blocks, EntryKind.BATCH, self._places)
        except BaseException:
            self._leave()
            raise

    async def follow(self) -> None:
        """Continue the log that counts until the next one does; a failure abandons it.

        Not during a `ship`. Its new blocks do not enter `places`: the next log has its own.
        """
        if self._ledger is None:
            return
        try:
            await self._put_waiting(self._waiting, self._ledger, self._blocks, EntryKind.BATCH, {})
        except BaseException as error:
            self._leave()
            if not isinstance(error, HomeError):
                raise

    async def _begin(self) -> None:
        """Begin another ledger with a snapshot. After a failure the former one continues if it can."""
        await self.follow()
        made: list[LedgerWriter] = []
        former = self._current
        names_places, wasteful = self._choose_places()
        blocks = self._blocks
        if blocks is not None and (
            not names_places
            or blocks.ledger_id in wasteful
            or blocks.size_bytes >= self._options.blocks_ledger_bytes
        ):
            blocks = None
        try:
            if names_places and blocks is None:
                blocks = await self._make(PLACES_VERSION, made)
            ledger = await self._make(PLACES_VERSION if names_places else GRAMMAR_VERSION, made)
            await self._point(former, self._others)
            for each in made:
                await each.put_header(self._identity)
            waiting = await self._put_snapshot(ledger, blocks, wasteful)
            await self._may_be_named(ledger.ledger_id)
            await self.follow()
            others = (self._others | {former}) - {ledger.ledger_id, NO_LEDGER}
            self._may_switch = True
            await self._point(ledger.ledger_id, others)
        except BaseException as error:
            # A ledger of blocks shared by both logs may end amid a record.
            shared = blocks is not None and blocks is self._blocks and self._next_waiting is not None
            if self._may_switch or shared:
                self._leave()
            if isinstance(error, Exception) and not any(self._may_count(each.ledger_id) for each in made):
                for each in made:
                    forget_ledger(self._places, each.ledger_id)
                    await self._delete(each.ledger_id)
            raise
        finally:
            self._may_switch, self._next_waiting = False, None
        self._current, self._others = ledger.ledger_id, others
        self._dirty_ns = None  # until now another ledger counted, perhaps without some writes
        self._ledger, self._blocks, self._waiting = ledger, blocks, waiting
        self._snapshot_bytes, self._snapshot_entries = ledger.size_bytes, ledger.entries
        if waiting.full:
            self._leave()  # too much came meanwhile: the next `ship` begins another
        self._chained(ledger.ledger_id)
        kept = ledgers_of(self._places)
        if blocks is not None:
            kept.add(blocks.ledger_id)
        named = len(others)
        for ledger_id in sorted(others - kept):
            await self._delete(ledger_id)
        if named - len(self._others) > _DEAD_NAMES_MAX:
            # Otherwise the next owner would inherit these ledgers and add its own.
            with contextlib.suppress(AwayError):
                await self._point(ledger.ledger_id, self._others)

    async def _make(self, version: int, made: list[LedgerWriter]) -> LedgerWriter:
        ledger = LedgerWriter(self._home, await self._home.create(), self._random(), version)
        made.append(ledger)
        self._others.add(ledger.ledger_id)
        return ledger

    def _choose_places(self) -> tuple[bool, set[int]]:
        """Choose whether the next log names places of blocks, and the ledgers of blocks to give up.

        A block that is not in the store cannot be appended elsewhere.
        """
        if not self._complete():
            return True, set()
        if self._block_bytes() <= self._options.inline_bytes:
            return False, ledgers_of(self._places)
        return True, wasteful_ledgers(self._places)

    async def _delete(self, ledger_id: int) -> None:
        """Delete a ledger that does not count: now if possible, else once the next one is made.

        The pointer names it until its next change, which is harmless; many such ledgers force a change.
        """
        if self._may_count(ledger_id):
            return
        with contextlib.suppress(HomeError):
            await self._home.delete(ledger_id)
            self._others.discard(ledger_id)

    def _may_count(self, ledger_id: int) -> bool:
        return any(pointer.ledger_id == ledger_id for pointer in self._unanswered)

    async def _point(self, ledger_id: int, others: set[int]) -> None:
        pointer = Pointer(self._home.kind, ledger_id, tuple(sorted(others)))
        self._unanswered.append(pointer)
        try:
            await self._replace_pointer(str(pointer))
        except StalePointerError:
            self._unanswered.clear()  # none stands there, and none can come any more
            raise
        self.pointer_text = str(pointer)
        self._unanswered.clear()

    async def _replace_pointer(self, new: str) -> None:
        """Replace the pointer written last, or any that may have been written."""
        try:
            await self._home.point(self.pointer_text, new)
        except StalePointerError:
            for former in [each for each in reversed(self._unanswered) if str(each) != new]:
                with contextlib.suppress(StalePointerError):
                    await self._home.point(str(former), new)
                    self._others.update(set(former.ledgers) - {self._current})
                    return
            raise

    async def _put_snapshot(
        self, ledger: LedgerWriter, blocks: LedgerWriter | None, wasteful: set[int]
    ) -> Waiting:
        """Begin the ledger with the store's content; later writes wait to follow it."""
        # The snapshot has all writes noted so far.
        self._catch_up()
        self._next_waiting = waiting = Waiting(self._options.queue_bytes)
        for ledger_id in wasteful:
            forget_ledger(self._places, ledger_id)
        before = dict(self._places)
        snapshot = Snapshot(self._store.untapped, self._subscription_id, None if blocks is None else before)
        while (piece := await self._next_piece(snapshot)) is not None:
            await self._put(ledger, blocks, EntryKind.SNAPSHOT, piece, self._places)
            _refuse_more(waiting)
            await self.follow()
        for key in before.keys() - snapshot.met:
            self._places.pop(key, None)  # there is no such block any more
        # It may also have a part of a write that is not noted yet.
        await self._offload(self._store.drain)
        self._catch_up()
        await self._put_waiting(waiting, ledger, blocks, EntryKind.SNAPSHOT, self._places)
        await self._put(ledger, blocks, EntryKind.SNAPSHOT_END, [], self._places)
        _refuse_more(waiting)
        waiting.appended()
        return waiting

    async def _next_piece(self, snapshot: Snapshot) -> list[Operation] | None:
        try:
            return await self._offload(snapshot.next_piece)
        finally:
            damaged = snapshot.take_damaged()
            if damaged:
                self._damaged(damaged)

    async def _put_waiting(
        self,
        waiting: Waiting,
        ledger: LedgerWriter,
        blocks: LedgerWriter | None,
        kind: EntryKind,
        places: Places,
    ) -> None:
        """Append the writes that wait now. Inside a snapshot they count when it ends."""
        left = len(waiting)
        while left:
            operations, taken = waiting.pop_oldest(self._options.record_bytes, left)
            left -= taken
            await self._put(ledger, blocks, kind, operations, places)
            _refuse_more(waiting)
            if kind is EntryKind.BATCH:
                waiting.appended()

    async def _put(
        self,
        ledger: LedgerWriter,
        blocks: LedgerWriter | None,
        kind: EntryKind,
        operations: list[Operation],
        places: Places,
    ) -> None:
        """Append a record, and its blocks to the ledger of blocks if there is one; adds to `places`."""
        if blocks is not None:
            operations = await self._placed(blocks, operations, places)
        before = ledger.size_bytes
        await ledger.put(kind, encode_operations(operations))
        self.written_bytes += ledger.size_bytes - before

    async def _placed(
        self, blocks: LedgerWriter, operations: list[Operation], places: Places
    ) -> list[Operation]:
        """Append the blocks of these operations; returns the operations with places instead of blocks."""
        found = [each for each in operations if each[0] == Batch.PUT and each[1][:1] == keys.BLOCK]
        if not found:
            return operations
        before = blocks.size_bytes
        made = await blocks.put_blocks(found)
        self.written_bytes += blocks.size_bytes - before
        places.update(made)
        return [
            (PLACE, key, made[key].encode())
            if kind == Batch.PUT and key[:1] == keys.BLOCK
            else (kind, key, value)
            for kind, key, value in operations
        ]


def _refuse_more(waiting: Waiting) -> None:
    if waiting.full:
        raise AwayError("it is slower than the writes")
