"""The journal: all changes since an index's last persist, durable by group commit.

A subscription's records are numbered 1, 2, 3 … without a gap; the key has the type, known even if the value
is corrupt. An append changes memory only. The core's thread takes and finishes a commit, any thread writes
it. A failed commit puts its records back, so no appended record is lost.

The commit thread touches only the records taken by `begin_commit`: these are not joined with later ones, and
none is superfluous. So it reads of a `SubscriptionJournal` only the subscription's number, and nothing of an
index. Its result, an error or none, is in place before any waiter continues.

Invariants: at most one commit is being written; `durable_token` never exceeds the extent of a synced write;
only `Journal` writes to a `SubscriptionJournal`, on the core's thread, and all others read it. `check` tests
the invariants of the state.
"""

from __future__ import annotations

import threading

from tidegate.index.clock import Clock
from tidegate.index.entries.checks import require
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import ClosedError, StorageError, TidegateIndexError
from tidegate.index.format import keys
from tidegate.index.format.records import (
    RECORD_ENTRIES_MAX,
    RecordType,
    encode_entries,
    encode_numbers,
    encode_positions,
)
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch, Store

_RECORD_BYTES = 64
_ENTRY_BYTES = 10
"""Estimate of an entry's size in the store, for the journal budget."""


class SubscriptionJournal:
    """The journal's view of one subscription. Made and changed by `Journal`."""

    __slots__ = (
        "_identity_token",
        "_last_sequence",
        "_oldest_ms",
        "_persisted_sequence",
        "_removed",
        "_size_bytes",
        "_tail",
        "subscription_id",
    )

    def __init__(self, subscription_id: int) -> None:
        self.subscription_id = subscription_id
        self._last_sequence = 0
        self._persisted_sequence = 0
        self._size_bytes = 0
        self._oldest_ms: int | None = None
        self._removed = False
        self._identity_token = 0
        self._tail: Record | None = None

    @property
    def last_sequence(self) -> int:
        """Number of the last record."""
        return self._last_sequence

    @property
    def persisted_sequence(self) -> int:
        """Records up to this one are superfluous: a persist covers them."""
        return self._persisted_sequence

    @property
    def records(self) -> int:
        """The number of records still needed."""
        return self._last_sequence - self._persisted_sequence

    @property
    def size_bytes(self) -> int:
        """Their estimated bytes in the store."""
        return self._size_bytes

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest of them was appended, None without one."""
        return self._oldest_ms

    @property
    def identity_token(self) -> int:
        """Once this token is durable, the store knows the subscription."""
        return self._identity_token


class Record:
    """One unwritten record. Consecutive records of one type are joined."""

    __slots__ = ("entries", "numbers", "parts", "positions", "record_type", "sequence", "subscription")

    def __init__(self, subscription: SubscriptionJournal, record_type: RecordType) -> None:
        self.subscription = subscription
        self.sequence = subscription._last_sequence + 1
        self.record_type = record_type
        self.entries = 0
        self.parts: list[Entries] = []
        self.positions: PositionSet | None = None
        self.numbers = (0, 0)

    def put_into(self, batch: Batch) -> None:
        """Encode the record and add it to `batch`."""
        if self.record_type in (RecordType.ADD, RecordType.MOVE):
            value = encode_entries(Entries.concat(self.parts))
        elif self.positions is not None:
            value = encode_positions(self.positions)
        else:
            value = encode_numbers(*self.numbers)
        batch.put(keys.journal_key(self.subscription.subscription_id, self.sequence, self.record_type), value)


class Commit:
    """A group commit on its way: taken, then `run` by any thread, then finished by the core's thread.

    records, extra: the content, unchanged before `Journal.finish_commit`. error: the reason of a failure;
    valid once `wait` has returned.
    """

    def __init__(
        self, store: Store, records: tuple[Record, ...], extra: Batch, token: int, piece_bytes: int
    ) -> None:
        self._store = store
        self._piece_bytes = piece_bytes
        self.records = records
        self.extra = extra
        self.token = token
        self.error: StorageError | None = None
        self.finished = False
        self._done = threading.Event()

    def run(self) -> None:
        """Write everything, the last piece synced. Keeps all errors, foreseen or not, for `finish_commit`."""
        try:
            self._write()
        except StorageError as error:
            self.error = error
        except BaseException as error:
            # Even an unforeseen error must never look like a success.
            self.error = StorageError(f"the commit was not written: {error!r}")
            if not isinstance(error, Exception):
                raise
        finally:
            # Last: a waiter asks for the error at once.
            self._done.set()

    def _write(self) -> None:
        batch = Batch()
        for record in self.records:
            record.put_into(batch)
            if batch.size_bytes >= self._piece_bytes:
                # Records need no atomicity between them, and one huge write would delay other threads.
                self._store.write(batch, sync=False)
                batch = Batch()
        # Last: an index's identity, or its log's chain, must not be there without its changes.
        batch.extend(self.extra)
        self._store.write(batch, sync=True)

    def wait(self) -> None:
        """Wait until another thread has run this commit."""
        self._done.wait()


class Journal:
    """Pending records of all subscriptions, and the tokens of durability."""

    def __init__(self, store: Store, clock: Clock, piece_bytes: int) -> None:
        self._store = store
        self._clock = clock
        self._piece_bytes = piece_bytes
        self._pending: list[Record] = []
        self._extra = Batch()
        self._writing: Commit | None = None
        self._closed = False
        self.appended_token = 0
        self.durable_token = 0
        self.size_bytes = 0
        self.records = 0
        """Records of all subscriptions that no persist covers."""

    def new_subscription(self, subscription_id: int, identity: Batch) -> SubscriptionJournal:
        """The journal of a new subscription; `identity` goes with the next commit."""
        subscription = SubscriptionJournal(subscription_id)
        self.identify(subscription, identity)
        return subscription

    def identify(self, subscription: SubscriptionJournal, identity: Batch) -> None:
        """Write the identity with the next commit. Records without it have no owner."""
        subscription._identity_token = self.also(identity)

    def recovered_subscription(self, subscription_id: int, persisted_sequence: int) -> SubscriptionJournal:
        """The journal of a stored subscription; `replayed` must follow."""
        subscription = SubscriptionJournal(subscription_id)
        subscription._persisted_sequence = subscription._last_sequence = persisted_sequence
        return subscription

    def replayed(self, subscription: SubscriptionJournal, last_sequence: int, size_bytes: int) -> None:
        """Note that the subscription's stored records have been read."""
        subscription._last_sequence = last_sequence
        self.records += subscription.records
        subscription._oldest_ms = self._clock.now_ms() if size_bytes else None
        subscription._size_bytes = size_bytes
        self.size_bytes += size_bytes

    def append_entries(
        self,
        subscription: SubscriptionJournal,
        entries: Entries,
        record_type: RecordType = RecordType.ADD,
    ) -> int:
        """Append ADD or MOVE; returns the token."""
        for start in range(0, len(entries), RECORD_ENTRIES_MAX):
            stop = min(len(entries), start + RECORD_ENTRIES_MAX)
            part = entries if stop - start == len(entries) else entries.part(start, stop)
            record = subscription._tail
            if (
                record is None
                or record.record_type is not record_type
                or record.entries + len(part) > RECORD_ENTRIES_MAX
            ):
                record = self._new_record(subscription, record_type)
            record.parts.append(part)
            record.entries += len(part)
            self._grow(subscription, len(part) * _ENTRY_BYTES)
        return self._issue()

    def append_positions(
        self, subscription: SubscriptionJournal, record_type: RecordType, positions: PositionSet
    ) -> int:
        """Append ACKNOWLEDGE, UNACKNOWLEDGE or DISOWN; returns the token."""
        record = subscription._tail
        if record is not None and record.record_type is record_type and record.positions is not None:
            record.positions.update(positions)
            self._grow(subscription, positions.portable_bytes())
        else:
            record = self._new_record(subscription, record_type)
            record.positions = positions.snapshot()
            self._grow(subscription, record.positions.portable_bytes())
        return self._issue()

    def append_numbers(
        self, subscription: SubscriptionJournal, record_type: RecordType, first: int = 0, second: int = 0
    ) -> int:
        """Append MARK_DELETE, CLEAR, WIDTH, GENERATION or CLAIM; returns the token."""
        record = subscription._tail
        # A mark-delete position that goes back must not hide the one before it, which removed positions.
        if record is None or record.record_type is not record_type or (first, second) < record.numbers:
            record = self._new_record(subscription, record_type)
        record.numbers = (first, second)
        return self._issue()

    def also(self, batch: Batch) -> int:
        """Write `batch` atomically with the last record of the next commit; returns the token."""
        self._extra.extend(batch)
        return self._issue()

    @property
    def pending(self) -> bool:
        """True if no commit has taken some appended records."""
        taken_token = self.durable_token if self._writing is None else self._writing.token
        return self.appended_token != taken_token

    def is_durable(self, subscription: SubscriptionJournal) -> bool:
        """True if every record of a subscription is durable. O(records that are not)."""
        waiting = self._pending if self._writing is None else [*self._writing.records, *self._pending]
        return not any(record.subscription is subscription for record in waiting)

    def cut(self, subscription: SubscriptionJournal) -> int:
        """The last sequence number; later records are not joined with those up to it."""
        subscription._tail = None
        return subscription.last_sequence

    def persisted(
        self, subscription: SubscriptionJournal, sequence: int, size_bytes: int, oldest_ms: int | None
    ) -> None:
        """Note that a persist has made records up to `sequence`, about `size_bytes`, superfluous.

        oldest_ms: when the persist began, if records were appended since, else None.
        """
        self.records -= sequence - subscription._persisted_sequence
        subscription._persisted_sequence = sequence
        subscription._oldest_ms = oldest_ms
        subscription._size_bytes -= size_bytes
        self.size_bytes -= size_bytes

    def remove(self, subscription: SubscriptionJournal) -> None:
        """Ignore all records of a subscription that is gone, also those still to come."""
        self.persisted(subscription, subscription.last_sequence, subscription.size_bytes, None)
        subscription._removed = True

    def begin_commit(self) -> Commit | None:
        """Take everything appended; None if that is nothing or another commit is being written.

        Raises ClosedError after `close`.
        """
        if self._closed:
            raise ClosedError("the journal is closed")
        if self._writing is not None or self.durable_token == self.appended_token:
            return None
        for record in self._pending:
            record.subscription._tail = None
        # A persist may have overtaken some records; a removed subscription's must not come back.
        records = tuple(
            record
            for record in self._pending
            if not record.subscription._removed and record.sequence > record.subscription._persisted_sequence
        )
        self._writing = Commit(self._store, records, self._extra, self.appended_token, self._piece_bytes)
        self._pending, self._extra = [], Batch()
        return self._writing

    def finish_commit(self, commit: Commit) -> int:
        """Account for a finished commit; the durable token. Raises StorageError if the write failed."""
        if not commit._done.is_set():
            raise TidegateIndexError("a commit is finished that has not run")
        if not commit.finished:
            commit.finished = True
            self._writing = None
            if commit.error is not None:
                self._pending = [*commit.records, *self._pending]
                commit.extra.extend(self._extra)
                self._extra = commit.extra
                raise commit.error
            self.durable_token = commit.token
        return self.durable_token

    def close(self) -> None:
        """Begin no further commit: the store closes."""
        self._closed = True

    def check(self, subscription: SubscriptionJournal) -> None:
        """Raise CheckError if an invariant, of all journals or of this one, is broken. O(pending)."""
        writing, taken = self._writing, () if self._writing is None else self._writing.records
        taken_token = self.durable_token if writing is None else writing.token
        require(
            subscription.identity_token <= self.appended_token
            and self.durable_token <= taken_token <= self.appended_token,
            f"tokens: {self.durable_token} durable, {taken_token} taken, {self.appended_token} appended",
        )
        require(
            self.pending or not (self._pending or len(self._extra)),
            "no commit would take the appended records",
        )
        waiting = [
            record.sequence for record in (*taken, *self._pending) if record.subscription is subscription
        ]
        end = subscription.last_sequence + 1
        require(
            waiting == [*range(end - len(waiting), end)],
            f"{waiting} wait, and {subscription.last_sequence} is the last",
        )
        require(
            subscription._tail is None or any(record is subscription._tail for record in self._pending),
            "a taken record is open to joins",
        )
        count, size_bytes = subscription.records, subscription.size_bytes
        require(0 <= count <= self.records, f"a subscription has {count} records of {self.records}")
        require(
            0 <= size_bytes <= self.size_bytes, f"a subscription has {size_bytes} bytes of {self.size_bytes}"
        )
        require(
            count > 0 or (size_bytes, subscription.oldest_ms) == (0, None),
            "a subscription has bytes, and no record",
        )

    def commit(self) -> int:
        """Take, write and finish; returns the durable token. Raises StorageError."""
        if self._writing is not None:
            writing = self._writing
            writing.wait()
            self.finish_commit(writing)
        commit = self.begin_commit()
        if commit is not None:
            commit.run()
            self.finish_commit(commit)
        return self.durable_token

    def _new_record(self, subscription: SubscriptionJournal, record_type: RecordType) -> Record:
        record = Record(subscription, record_type)
        subscription._last_sequence = record.sequence
        subscription._tail = record
        if subscription._oldest_ms is None:
            subscription._oldest_ms = self._clock.now_ms()
        self._pending.append(record)
        self._grow(subscription, _RECORD_BYTES)
        if not subscription._removed:
            self.records += 1
        return record

    def _grow(self, subscription: SubscriptionJournal, size_bytes: int) -> None:
        if subscription._removed:
            return  # it would never be subtracted again
        subscription._size_bytes += size_bytes
        self.size_bytes += size_bytes

    def _issue(self) -> int:
        self.appended_token += 1
        return self.appended_token
