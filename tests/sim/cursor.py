"""A cursor in one broker's memory, after Pulsar 4.0.8's ManagedCursorImpl.

Its rules: individual acknowledgements join mark-delete when nothing is missing between; a record is persisted
at most once a second and on close, and holds the individual acknowledgements up to the range limit *as they
are when the write begins*; a reset clears them only when its own record is written, so that this record still
has them; acknowledgements keep the record's properties, a reset wipes them; cursor properties are written to
the metadata store by compare-and-set, and the cursor's own writes there before the answer are refused, its
last write too, and a reset, which is stored later nevertheless; a recovered cursor makes its own
ledger before its first write; a fenced one tries the metadata store instead, and succeeds there if the new
owner has not written yet.

Cleared backlogs, skipped messages, quotas and cumulative acknowledgements move mark-delete forward without
the properties, too.

Left out: batch indexes, trimming, roll-over of the cursor's ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.sim.bookkeeper import (
    BadVersionError,
    BookKeeper,
    CursorInfo,
    CursorLedger,
    CursorRecord,
    Position,
    Subscription,
)
from tests.sim.kernel import NS_PER_MS, NS_PER_S, Kernel, Process

_PERSIST_INTERVAL_NS = NS_PER_S

Done = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class CursorOptions:
    """`ranges_max`: acknowledged ranges in a record; `flush_ms`: how often a dirty cursor is written."""

    ranges_max: int
    flush_ms: int
    io_ns: int


@dataclass(slots=True)
class _MarkDelete:
    """A requested write of the cursor's position. `number`: in the order in which writes begin. `is_stored`:
    somebody relies on it, so that it keeps its place among the others.
    """

    position: Position
    properties: Mapping[str, int]
    resets: tuple[int, ...]
    done: list[Done]
    number: int = 0
    is_stored: bool = False


@dataclass(slots=True)
class _PropertyWrite:
    """A cursor property on its way to the metadata store. `version`: of the record at the request; `written`:
    of the record since, None if refused. The store answers later than it writes.
    """

    info: CursorInfo
    version: int
    done: Done
    there: bool = False
    written: int | None = None


class Cursor:
    """`owns`: this broker is the topic's present owner, by the metadata store."""

    def __init__(
        self,
        kernel: Kernel,
        process: Process,
        bookkeeper: BookKeeper,
        subscription: Subscription,
        options: CursorOptions,
        owns: Callable[[], bool],
    ) -> None:
        self._kernel = kernel
        self._process = process
        self._bookkeeper = bookkeeper
        self._options = options
        self._owns = owns
        self.subscription = subscription
        self.closed = False
        self.tag: tuple[str, int] | None = None  # which daemon's disk served the subscription
        self._recover()

    def _recover(self) -> None:
        info = self.subscription.info
        assert info is not None, "a subscription that is loaded exists"
        if info.ledger is not None:
            info.ledger.fence()
        record = info.latest()
        self._version = info.version
        self._info = info
        self.cursor_properties = dict(info.cursor_properties)
        self.mark_delete = record.mark_delete
        self.persisted_mark_delete: Position | None = record.mark_delete
        self.acknowledged = {position for position in record.acknowledged if position > record.mark_delete}
        self.beyond = record.beyond
        self.properties = dict(record.properties)
        self.resets = record.resets
        self.resetting = False
        self.reset_met_property = False  # a write of a property was under way during the last reset
        self.forgotten: set[Position] = set()  # taken along by a write that a reset has overtaken
        self.read_position = self._next(record.mark_delete)
        self._ledger: CursorLedger | None = None
        self._creating = False
        self._queue: list[_MarkDelete] = []
        self._property_writes: list[_PropertyWrite] = []  # unanswered, in the order of the requests
        self._in_progress: Position | None = None
        self._last = _MarkDelete(self.mark_delete, self.properties, self.resets, [])
        self._written_ns: int | None = None
        self._dirty = False
        self._writes = 0
        self._stored_number = 0  # of the last write that somebody relies on
        self._written_number = 0
        self.consumed = 0  # number of deletions
        self.persisted_by: object = None  # the write that has set the persisted position
        self._arm_flush()

    # ---- reading

    def is_deleted(self, position: Position) -> bool:
        return position <= self.mark_delete or position in self.acknowledged

    def rewind(self) -> None:
        """Read again from mark-delete on."""
        self.read_position = self._next(self.mark_delete)

    def _next(self, position: Position) -> Position:
        return (position[0], position[1] + 1)

    # ---- acknowledging

    def acknowledge(self, positions: Iterable[Position], done: Done | None = None) -> None:
        """asyncDelete."""
        callbacks = [] if done is None else [done]
        last = self._bookkeeper.log.positions[-1:]
        wanted = list(positions)
        if self.closed or any(not last or position > last[0] for position in wanted):
            self._tell(callbacks, False)
            return
        self.consumed += len(wanted)
        self.acknowledged.update(position for position in wanted if not self.is_deleted(position))
        if not self.acknowledged:
            self._tell(callbacks, True)
            return
        self._advance()
        if self.is_limited:
            self._dirty = True
            self._remember(self.mark_delete)
            self._tell(callbacks, True)
            return
        self._write(_MarkDelete(self.mark_delete, self._last.properties, self.resets, callbacks))

    @property
    def is_limited(self) -> bool:
        """True if the position was written a moment ago, so that another write has to wait."""
        written_ns = self._written_ns
        return written_ns is not None and self._kernel.now_ns - written_ns < _PERSIST_INTERVAL_NS

    def _advance(self) -> None:
        """Move mark-delete over acknowledged positions without a gap."""
        log = self._bookkeeper.log
        at = log.after(self.mark_delete)
        while at < len(log.positions) and log.positions[at] in self.acknowledged:
            self.mark_delete = log.positions[at]
            self.acknowledged.discard(self.mark_delete)
            at += 1
        self.read_position = max(self.read_position, self._next(self.mark_delete))

    def _remember(self, position: Position) -> None:
        """Note the content of the next write, if nothing newer comes."""
        if self._last.position <= position:
            self._last = _MarkDelete(position, self._last.properties, self.resets, [])

    def _arm_flush(self) -> None:
        self._kernel.after(self._options.flush_ms * NS_PER_MS, self._process, self._flush)

    def _flush(self) -> None:
        if not self.closed:
            self.flush()
            self._arm_flush()

    def flush(self) -> None:
        """Write changes put off by the limit of one a second."""
        if self._dirty and not self.resetting and not self.closed:
            self._dirty = False
            self._write(_MarkDelete(self._last.position, self._last.properties, self.resets, []))

    # ---- properties of the position

    @property
    def position_properties(self) -> Mapping[str, int]:
        return self._last.properties

    def get_property(self, key: str) -> int | None:
        """A property that goes with mark-delete."""
        return self._last.properties.get(key)

    def put_property(self, key: str, value: int) -> bool:
        """Keep a number with mark-delete from the next write on."""
        last = self._last
        self._last = _MarkDelete(last.position, {**last.properties, key: value}, last.resets, last.done)
        return True

    # ---- resetting

    def reset(self, read_position: Position, number: int, done: Done) -> None:
        """Seek: read again from `read_position`; `number` is this reset's in the chain."""
        if self.closed or self.resetting:
            done(False)
            return
        self.resetting = True
        self.reset_met_property = bool(self._property_writes)
        mark_delete = self._bookkeeper.log.before(read_position)
        resets = (*self.resets, number)

        def complete(written: bool) -> None:
            if written:
                self.mark_delete = mark_delete
                self.acknowledged.clear()
                self.properties = {}
                self._last = _MarkDelete(mark_delete, {}, resets, [])
                self.resets = resets
                self.read_position = self._next(mark_delete)
                self._queue.clear()
            self.resetting = False
            done(written)

        self.persisted_mark_delete = None
        self._in_progress = None
        write = _MarkDelete(mark_delete, {}, resets, [complete])
        self._last = _MarkDelete(mark_delete, self._last.properties, resets, [])
        self._write(write)

    def clear_backlog(self, done: Done) -> bool:
        """Skip everything: mark-delete goes to the last message, with other properties. True if it is done,
        or will be when `done` is called.
        """
        last = self._bookkeeper.log.positions[-1:]
        return bool(last) and last[0] > self.mark_delete and self.move_to(last[0], {}, done)

    def skip(self, count: int, done: Done) -> bool:
        """asyncSkipEntries: mark-delete passes so many unacknowledged ones."""
        log = self._bookkeeper.log
        left = [each for each in log.positions[log.after(self.mark_delete) :] if not self.is_deleted(each)]
        return bool(left) and self.move_to(left[:count][-1], {}, done)

    def move_to(self, position: Position, properties: Mapping[str, int], done: Done) -> bool:
        """asyncMarkDelete: mark-delete goes forward, and on over acknowledged ones right behind, with other
        properties. True if it is done, False if it will be when `done` is called.
        """
        if self.closed or self.resetting or position < self.mark_delete:
            return False
        self.mark_delete = position
        self.acknowledged = {each for each in self.acknowledged if each > position}
        self._advance()
        write = _MarkDelete(self.mark_delete, properties, self.resets, [done])
        if self.is_limited:
            self._dirty = True
            if self._last.position <= self.mark_delete:
                self._last = _MarkDelete(self.mark_delete, properties, self.resets, [])
            self._tell(write.done, True)
        else:
            self._write(write)
        return True

    def store(self, done: Callable[[bool], None]) -> None:
        """asyncMarkDelete to its own position, past the limit of one a second: True if the last persisted
        position is of this write, or beyond; see the shim's `StoredDeletions`.
        """
        is_over = [False]

        def written(done_: bool) -> None:
            persisted = self.persisted_mark_delete
            beyond = persisted is not None and persisted > write.position
            done(done_ and is_over[0] and (self.persisted_by is write or beyond))

        self._advance()
        write = _MarkDelete(self.mark_delete, self._last.properties, self.resets, [written], is_stored=True)
        self._write(write)
        is_over[0] = True

    @property
    def used(self) -> int:
        """Number of ranges of individual acknowledgements."""
        ranges = 0
        before: Position | None = None
        for position in sorted(self.acknowledged):
            ranges += before is None or position != self._next(before)
            before = position
        return ranges

    @property
    def ranges_max(self) -> int:
        """How many of them a record has."""
        return self._options.ranges_max

    # ---- writing

    def _record(self, write: _MarkDelete) -> CursorRecord:
        kept = self._ranges()
        beyond = frozenset(self.acknowledged - kept)
        return CursorRecord(write.position, kept, dict(write.properties), write.resets, beyond)

    def _ranges(self) -> frozenset[Position]:
        """The individual acknowledgements of the first ranges."""
        kept: list[Position] = []
        ranges = 0
        before: Position | None = None
        for position in sorted(self.acknowledged):
            if before is None or position != self._next(before):
                ranges += 1
                if ranges > self._options.ranges_max:
                    break
            kept.append(position)
            before = position
        return frozenset(kept)

    def _write(self, write: _MarkDelete) -> None:
        """internalAsyncMarkDelete: queue it without a ledger, else write it."""
        if self.closed:
            self._tell(write.done, False)
            return
        self._written_ns = self._kernel.now_ns
        if self._ledger is not None:
            self._write_now(write)
            return
        self._queue.append(write)
        if not self._creating:
            self._creating = True
            self._later(self._create_ledger)

    def _write_now(self, write: _MarkDelete) -> None:
        persisted = self.persisted_mark_delete
        if persisted is not None and write.position < persisted:
            self._tell(write.done, True)
            return
        if self._in_progress is not None and self._in_progress > write.position:
            self._tell(write.done, True)
            return
        self._in_progress = write.position
        if self._last.position <= write.position:
            self._last = _MarkDelete(write.position, write.properties, write.resets, [])
        record = self._record(write)
        ledger = self._ledger
        assert ledger is not None
        self._writes += 1
        write.number = self._writes
        # The bookie writes it whatever becomes of the broker, which learns it later. Two under way may change
        # places, which no ledger does: it stands for Pulsar's write of acknowledgements amid a reset behind
        # the reset's record, with the position from before it.
        self._kernel.after(self.round_trip_ns(), None, self._append, ledger, record, write)

    def _append(self, ledger: CursorLedger, record: CursorRecord, write: _MarkDelete) -> None:
        written = ledger.append(self, record) if self._keeps_place(write) else ledger.writer is self
        self._later(self._appended, write, record, written)

    def _keeps_place(self, write: _MarkDelete) -> bool:
        """False if a later write has arrived, and one of the two is relied on."""
        if write.number < self._stored_number or (write.is_stored and write.number < self._written_number):
            return False
        self._written_number = max(self._written_number, write.number)
        if write.is_stored:
            self._stored_number = write.number
        return True

    def _appended(self, write: _MarkDelete, record: CursorRecord, written: bool) -> None:
        if written:
            self._written(write)
        elif self.closed:
            self._tell(write.done, False)
        else:
            self._ledger = None
            if write.number < self._stored_number or self._put_info(None, record):
                self._written(write)
            else:
                self._dirty = True
                self._tell(write.done, False)

    def _written(self, write: _MarkDelete) -> None:
        if self._in_progress == write.position:
            self._in_progress = None
        covered = {position for position in self.acknowledged if position <= write.position}
        self.forgotten |= {position for position in covered if position > self.mark_delete}
        self.acknowledged -= covered
        self.persisted_mark_delete = write.position
        self.persisted_by = write
        self._tell(write.done, True)

    def _create_ledger(self) -> None:
        """The first write of this owner: a ledger with the last position in it, then the metadata store."""
        ledger = self._bookkeeper.create_cursor_ledger(self)
        ledger.append(self, self._record(self._last))
        self._later(self._switch_to, ledger)

    def _switch_to(self, ledger: CursorLedger) -> None:
        self._creating = False
        if self.closed:
            return
        assert ledger.last is not None
        queue, self._queue = self._queue, []
        if not self._put_info(ledger, ledger.last):
            for write in queue:
                self._dirty = True
                self._tell(write.done, False)
            return
        self._ledger = ledger
        if queue:
            last = queue[-1]
            last.done = [done for write in queue for done in write.done]
            self._write_now(last)

    def _put_info(
        self, ledger: CursorLedger | None, record: CursorRecord, version: int | None = None
    ) -> bool:
        """Write the metadata record; False if another writer has written it since, or this cursor itself a
        property, without an answer so far.

        Only then Pulsar learns the present version. version: of the time of the request.
        """
        info = CursorInfo(0, ledger, record, dict(self.cursor_properties))
        if self._put(info, self._version if version is None else version):
            return True
        self._hear_properties()  # the store answers in order
        stored = self.subscription.info
        if stored is not None and self._owns():
            self._version, self._info = stored.version, stored
        return False

    def _put(self, info: CursorInfo, version: int) -> bool:
        try:
            self._version = self._bookkeeper.put(self.subscription, info, version)
        except BadVersionError:
            return False
        self._info = info
        return True

    def put_cursor_property(self, key: str, value: str, done: Done) -> None:
        """Write one more cursor property, by compare-and-set. Not on a closed cursor.

        One requested before the close is written before it: the metadata store keeps the order. Until its
        answer the store refuses the cursor's own writes.
        """
        assert not self.closed, "Pulsar would write it behind the next owner's back"
        properties = {**self.cursor_properties, key: value}
        info = CursorInfo(0, self._info.ledger, self._info.record, properties)
        write = _PropertyWrite(info, self._version, done)
        self._property_writes.append(write)
        self.reset_met_property |= self.resetting
        round_trip_ns = self.round_trip_ns()
        self._kernel.after(round_trip_ns // 2, self._process, self._bring_properties, write)
        self._kernel.after(round_trip_ns, self._process, self._hear_properties)

    def _bring_properties(self, last: _PropertyWrite) -> None:
        """The metadata store gets this write, and earlier requests."""
        if last.there or self.closed:
            return
        for write in self._property_writes[: self._property_writes.index(last) + 1]:
            if not write.there:
                write.there = True
                with contextlib.suppress(BadVersionError):
                    write.written = self._bookkeeper.put(self.subscription, write.info, write.version)

    def _hear_properties(self) -> None:
        """The metadata store has answered all that it got."""
        heard = [write for write in self._property_writes if write.there]
        self._property_writes = [write for write in self._property_writes if not write.there]
        for write in heard:
            if write.written is not None:
                self.cursor_properties = dict(write.info.cursor_properties)
                if write.written > self._version:
                    self._version, self._info = write.written, write.info
            write.done(write.written is not None)

    # ---- the end

    def close(self, done: Callable[[], None]) -> None:
        """Persist what can be; from now on nothing is acknowledged."""
        if self.closed:
            done()
            return
        if self._property_writes:
            self._bring_properties(self._property_writes[-1])
        self.closed = True
        record, version = self._record(self._last), self._version

        def put() -> None:
            self._put_info(None, record, version)
            done()

        self._later(put)

    # ---- time

    def round_trip_ns(self) -> int:
        """How long the next request to a bookie or the metadata store takes."""
        return self._kernel.between_ns(self._options.io_ns // 4, self._options.io_ns)

    def _later(self, call: Callable[..., None], *args: object) -> None:
        self._kernel.after(self.round_trip_ns(), self._process, call, *args)

    @staticmethod
    def _tell(done: list[Done], written: bool) -> None:
        for each in done:
            each(written)
