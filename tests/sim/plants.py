"""Known bugs, planted: they show that the simulator finds what it is made to find.

Each is put in for the time of a `with`, by replacing a method of the product (or, where the fault is the
broker's, of the model). Those with a commit are faults that this project had, and that the commit repaired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from tests.sim import broker
from tests.sim.belief import Belief
from tests.sim.broker import ServedSubscription
from tests.sim.cursor_properties import CursorProperties
from tests.sim.kernel import NS_PER_S
from tests.sim.overrides import OverrideLog, Stored
from tests.sim.seal import NO_SEAL, Claim, Seal
from tests.sim.shim import Stream as ShimStream
from tests.sim.shim import Tracker as ShimTracker
from tests.sim.stored_deletions import Kept
from tidegate.index.blocks import persist
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.persister import Persister
from tidegate.index.catalog import catalog
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.catalog.chains import Chains
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.journal.damaged_values import set_aside
from tidegate.index.journal.journal import Commit
from tidegate.index.log.home import AwayError, NoLedgerError
from tidegate.index.log.landing import Landing
from tidegate.index.log.object_home import ObjectHome
from tidegate.index.log.tap import Noted
from tidegate.index.log.waiting import Waiting
from tidegate.index.log.writer import LogWriter
from tidegate.index.names import SubscriptionName
from tidegate.index.state.position_state import ChangedLedgers, PositionState
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch
from tidegate.index.subscription.changes import Changes
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline.timeline import Timeline
from tidegate.plugin.daemon import histories
from tidegate.plugin.daemon.committer import Committer
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.engine import DaemonEngine
from tidegate.plugin.daemon.index_logs import restorer
from tidegate.plugin.daemon.index_logs.fetching import BlockFetch
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs
from tidegate.plugin.daemon.index_logs.last_words import LastWords
from tidegate.plugin.daemon.session import Session
from tidegate.plugin.wire.messages import Pace, Paced, Unheld
from tidegate.plugin.wire.release_pace import PaceKind


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute is another one for a while."""
    former = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, former)


@contextmanager
def _rest_not_read() -> Iterator[None]:
    """e5fa191: what a killed broker had sent last was dropped with its connection."""

    def read_rest(self: Any) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    with replaced(Connection, "read_rest", read_rest):
        yield


@contextmanager
def _applied_but_failed() -> Iterator[None]:
    """fea1ddf: what a persist had written counted later, though it was reported as failed."""

    with (
        replaced(Leftovers, "orphan", lambda self, keys: None),
        replaced(Leftovers, "doubt", lambda self, slices: None),
    ):
        yield


@contextmanager
def acknowledgements_not_put_back() -> Iterator[None]:
    """Issue 42: what a failed persist had taken of the acknowledgements was in no later one either."""

    def abandon(self: Any) -> None:
        with replaced(
            PositionState,
            "put_back",
            lambda positions, changed: put_back(positions, ChangedLedgers(changed.held, set())),
        ):
            original(self)

    put_back, original = PositionState.put_back, Persister.abandon_persist
    with replaced(Persister, "abandon_persist", abandon):
        yield


@contextmanager
def _durable_too_early() -> Iterator[None]:
    """Frames are called durable when their commit begins."""

    def begin(self: Any) -> None:
        original(self)
        if self._writing is not None:
            for stream in list(self._committing):
                durability = stream.session.durable(self._writing.token)
                if durability is not None:
                    self._listener.on_durable(stream, durability)

    original = Committer._begin
    with replaced(Committer, "_begin", begin):
        yield


@contextmanager
def _commit_unsynced() -> Iterator[None]:
    """A commit is written and not synced."""

    def run(self: Any) -> None:
        write = self._store.write
        with replaced(self._store, "write", lambda batch, *, sync: write(batch, sync=False)):
            original(self)

    original = Commit.run
    with replaced(Commit, "run", run):
        yield


@contextmanager
def _credit_ignored() -> Iterator[None]:
    """Entries are handed out without credit."""

    def pop_due(self: Any, now_ms: int, limit: int) -> Entries:
        credit = self.credit
        self.credit = max(self.credit, 3)
        entries = original(self, now_ms, limit)
        self.credit = max(0, credit - len(entries))
        return entries

    original = Session.pop_due
    with replaced(Session, "pop_due", pop_due):
        yield


@contextmanager
def _rewind_forgotten() -> Iterator[None]:
    """After OPEN, what was handed out on a former connection is not handed out again."""
    with replaced(PositionState, "rewind", lambda self, in_flight: None):
        yield


@contextmanager
def _carry_lost() -> Iterator[None]:
    """Entries that a persist leaves staged are not poppable after it."""
    with replaced(Timeline, "carry", lambda self, entries: None):
        yield


@contextmanager
def _believed_over_a_reset() -> Iterator[None]:
    """Issue 11: acknowledgements were believed whatever had become of the cursor since."""

    def begin_generation(self: Any, generation: int) -> None:
        self.generation = generation

    with replaced(PositionState, "begin_generation", begin_generation):
        yield


@contextmanager
def refused_and_left() -> Iterator[None]:
    """5df189f: a reset that met a write of a property was refused, and its position stored later."""
    with replaced(CursorProperties, "is_being_reset", False):
        yield


@contextmanager
def _left_as_loaded() -> Iterator[None]:
    """d57358d: what a reset's own record still had as acknowledged was believed by the next owner."""
    with replaced(ServedSubscription, "_is_undone", False):
        yield


@contextmanager
def _sealed_before_the_look() -> Iterator[None]:
    """A tracker that was made before the topic's loading was told put a seal, which vouched for what a reset
    had taken back."""
    original = ServedSubscription._make_tracker

    def make(self: Any) -> Any:
        self._look, look = lambda: None, self._look
        try:
            return original(self)
        finally:
            self._look = look

    # The thread that tells is late, so that most trackers are made before.
    late_ns = 2 * NS_PER_S
    with replaced(ServedSubscription, "_make_tracker", make), replaced(broker, "_LOOK_NS", late_ns):
        yield


@contextmanager
def sealed_amid_a_reset() -> Iterator[None]:
    """The simulator's own find: a seal that is put while a reset is under way is stored with it, and what was
    seen acknowledged before the reset has cleared it is believed."""
    with replaced(ServedSubscription, "may_seal", lambda self: True):
        yield


@contextmanager
def _lost_seal_is_a_resets() -> Iterator[None]:
    """Issue 42: a seal that a move forward has taken was stored no more, so that the next owner took the
    cursor for one that was reset."""
    with replaced(ServedSubscription, "_store_seal", lambda self: None):
        yield


@contextmanager
def moves_taken_for_resets() -> Iterator[None]:
    """The simulator's own find: after a skip the shim disbelieved the daemon, which then forgot
    acknowledgements."""

    def replace_(self: Any) -> bool:
        self.renew()
        return False

    with replaced(Seal, "replace", replace_):
        yield


@contextmanager
def _resets_taken_for_moves() -> Iterator[None]:
    """A reset counts as a move forward, whoever has come and gone."""

    def replace_(self: Any) -> bool:
        told, unheard = self.told, self._unheard
        self.renew()
        self.told, self._unheard = told, unheard
        return cast(int, self.generation) != NO_SEAL

    with replaced(Seal, "replace", replace_):
        yield


@contextmanager
def _former_seal_not_told() -> Iterator[None]:
    """OPEN has the present seal, before the daemon has said what it knows under the former."""

    def tell(self: Any) -> int:
        self.told = self.generation
        return cast(int, self.told)

    with replaced(Seal, "tell", tell):
        yield


@contextmanager
def told_once() -> Iterator[None]:
    """1517fa4: what the daemon had let go of was not told once more while its DURABLE was on its way."""

    def on_unheld(self: Any, unheld: Unheld) -> None:
        with replaced(self.outbox, "add", lambda position, deliver_at_ms, *, near: None):
            original(self, unheld)

    original = ShimTracker.on_unheld
    with replaced(ShimTracker, "on_unheld", on_unheld):
        yield


@contextmanager
def _epoch_of_the_clock() -> Iterator[None]:
    """Issue 11: the epoch was the wall clock of whoever made the tracker."""

    def make(self: Any, claimed: Callable[[], None]) -> None:
        if not self.owned:
            self.owner = replace(self._host.owner() or self._known, epoch=self._host.now_ms())
            self._host.put_owner(self.owner, lambda done: None)
            self.owned = True
            claimed()

    with replaced(Claim, "make", make):
        yield


@contextmanager
def _credit_after_close() -> Iterator[None]:
    """f029f7f: a tracker that had finished gave credit back after its CLOSE."""

    def take_frames(self: Any) -> Any:
        changes, credit = original(self)
        if self.finished and self.stream is ShimStream.OPEN and not credit:
            credit, self._credit_back = max(1, self._credit_back), 0
        return changes, credit

    original = ShimTracker.take_frames
    with replaced(ShimTracker, "take_frames", take_frames):
        yield


@contextmanager
def given_back_in_eighths() -> Iterator[None]:
    """3404f5f: credit was returned in eighths of what OPEN gave; a daemon may keep less than one."""

    def is_credit_due(self: Any) -> bool:
        return bool(self._credit_back >= max(1, self.options.credit // 8))

    with replaced(ShimTracker, "_is_credit_due", property(is_credit_due)):
        yield


@contextmanager
def _clock_ahead() -> Iterator[None]:
    """The shim gates by a clock that is ahead of the broker's (a fault of the model, not of the product)."""
    with replaced(ServedSubscription, "now_ms", lambda self: self.broker.clock.now_ms() + 5):
        yield


class _AnyChain(Chain):
    """Says of every log that the local data has all of it."""

    def has(self, ledger_id: int, home: str) -> bool:
        return True


@contextmanager
def _pointer_not_compared() -> Iterator[None]:
    """A daemon that has an index goes on with it, although another one has written its log since."""

    def chain(self: Any, index: DelayIndex) -> Chain | None:
        found = original(self, index)
        return None if found is None else _AnyChain(*found)

    original = Chains.get
    with replaced(Chains, "get", chain):
        yield


@contextmanager
def names_no_ledger_before() -> Iterator[None]:
    """Until this was found, the local data named no log before its pointer was known to be written."""

    async def may_count(self: Any, index: DelayIndex, ledger_id: int, home: str) -> None:
        """Tell nobody."""

    with replaced(IndexLogs, "_may_count", may_count):
        yield


@contextmanager
def _waiting_counts() -> Iterator[None]:
    """Records that wait for an index log count as being in it."""
    with replaced(LogWriter, "since_ns", property(lambda self: self._dirty_ns)):
        yield


@contextmanager
def _forgotten_beside_a_snapshot() -> Iterator[None]:
    """Changes during the snapshot of an index log are missing in the log."""

    def note(self: Any, noted: Noted) -> None:
        if self._next_waiting is None:
            original(self, noted)

    original = LogWriter.note
    with replaced(LogWriter, "note", note):
        yield


@contextmanager
def _waits_without_a_bound() -> Iterator[None]:
    """However much waits for an index log, it is kept."""

    def put(self: Any, noted: Noted) -> None:
        self._noted.append(noted)
        self.size_bytes += noted.size_bytes

    with replaced(Waiting, "put", put):
        yield


@contextmanager
def _kept_aside_without_a_bound() -> Iterator[None]:
    """Whatever was damaged is kept aside."""

    def keep(store: Any, damaged: Any, budget_bytes: int) -> Batch:
        return set_aside(store, damaged, 1 << 40)

    with replaced(persist, "set_aside", keep), replaced(catalog, "set_aside", keep):
        yield


@contextmanager
def _never_full() -> Iterator[None]:
    """The shim reads on, however much the daemon has not said DURABLE of."""
    with replaced(ShimTracker, "_is_full", lambda self: False):
        yield


@contextmanager
def _not_told_unheld() -> Iterator[None]:
    """The broker does not hear what the index has let go of."""
    with replaced(DelayIndex, "take_unheld", lambda self: PositionSet()):
        yield


@contextmanager
def landed_without_a_mark() -> Iterator[None]:
    """The simulator's own find: blocks of a log that was being read at a crash stayed on the disk."""

    def init(self: Any, *args: Any, **more: Any) -> None:
        original(self, *args, **more)
        self._batch = Batch()

    original = Landing.__init__
    with replaced(Landing, "__init__", init):
        yield


@contextmanager
def _end_of_another_append() -> Iterator[None]:
    """The simulator's own find: in a store of objects, an append that was abandoned took its end from the one
    before it, for which it waited."""

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
def _last_object_not_read() -> Iterator[None]:
    """The last entry of an index log in a store of objects passes for the fence after it."""

    async def open_log(self: Any, ledger_id: int) -> int:
        return await original(self, ledger_id) - 1

    original = ObjectHome.open
    with replaced(ObjectHome, "open", open_log):
        yield


@contextmanager
def _acknowledgements_gone() -> Iterator[None]:
    """An index that gave way to its log, which was behind, took along what it knew acknowledged."""
    with replaced(restorer, "last_words", lambda former, index, request: LastWords()):
        yield


@contextmanager
def _looked_for_elsewhere() -> Iterator[None]:
    """The simulator's own fault: indexes were restored from another store than the one their logs are in."""

    async def open_log(self: Any, ledger_id: int) -> int:
        raise NoLedgerError(f"there is no ledger {ledger_id}")

    with replaced(ObjectHome, "open", open_log):
        yield


@contextmanager
def _chain_must_be_readable() -> Iterator[None]:
    """A disk that cannot be read just then ended the connection of a broker that opened a subscription."""

    def chain(self: Any, index: DelayIndex) -> Chain | None:
        known = self._set.get(index)
        if known is not None:
            return cast("Chain", known)
        value = self._store.get(keys.subscription_key(keys.CHAIN, index.own_journal.subscription_id))
        return None if value is None else Chain.decode(value)

    with replaced(Chains, "get", chain):
        yield


@contextmanager
def nobody_commits_upkeep() -> Iterator[None]:
    """The simulator's own find: what a persist wrote of a subscription was there after it was forgotten."""
    with replaced(Catalog, "uncommitted", property(lambda self: False)):
        yield


@contextmanager
def taken_for_foreign() -> Iterator[None]:
    """The simulator's own find: a directory of ours without its format record was somebody else's."""
    with replaced(keys, "is_ours", lambda key: False):
        yield


@contextmanager
def brings_what_was_dropped() -> Iterator[None]:
    """The simulator's own find: a fetch went on with blocks that were dropped while the bookies were away."""
    with replaced(BlockFetch, "_still_absent", lambda self, blocks: list(blocks)):
        yield


@contextmanager
def _pause_not_stored() -> Iterator[None]:
    """A pause is in force and answered, and the cursor's properties do not have it."""

    def on_pace(self: Any, asked: Pace, answer: Callable[[Paced], None]) -> None:
        if not asked.ask and asked.pace.kind == PaceKind.PAUSED:
            self.is_paused = True
            answer(Paced(asked.pace))
        else:
            original(self, asked, answer)

    original = ShimTracker.on_pace
    with replaced(ShimTracker, "on_pace", on_pace):
        yield


@contextmanager
def _read_leaves_while_paused() -> Iterator[None]:
    """The near tier waits, and messages that the dispatcher reads when they are due leave."""

    def add_found(self: Any, position: Any, deliver_at_ms: int) -> bool:
        paused, self.is_paused = self.is_paused, False
        try:
            return original(self, position, deliver_at_ms)
        finally:
            self.is_paused = paused

    original = ShimTracker._add_found
    with replaced(ShimTracker, "_add_found", add_found):
        yield


@contextmanager
def _overrides_forgotten() -> Iterator[None]:
    """A new owner opens the ledger of overrides and reads nothing of it."""

    def on_read(self: Any, entries: Any) -> None:
        original(self, [] if entries else entries)

    original = OverrideLog._on_read
    with replaced(OverrideLog, "_on_read", on_read):
        yield


@contextmanager
def _answered_before_it_is_stored() -> Iterator[None]:
    """A move is answered as done when it is decided."""

    def store(self: Any, records: Any, done: Callable[[Stored], None]) -> None:
        original(self, records, lambda stored: None)
        done(Stored.YES)

    original = OverrideLog.store
    with replaced(OverrideLog, "store", store):
        yield


@contextmanager
def _daemon_alone_is_told() -> Iterator[None]:
    """A move is stored nowhere but in the daemon's index."""

    def store(self: Any, records: Any, done: Callable[[Stored], None]) -> None:
        self._on_stored(records)
        done(Stored.YES)

    with replaced(OverrideLog, "store", store):
        yield


@contextmanager
def _cancelled_and_held() -> Iterator[None]:
    """The index goes on holding what is cancelled: no ACK comes, and the daemon makes none of the answer."""

    def cancel(self: Any, positions: Any) -> None:
        with replaced(self.outbox, "acknowledge", lambda positions: None):
            original(self, positions)

    original = ShimTracker._cancel
    with (
        replaced(ShimTracker, "_cancel", cancel),
        replaced(DaemonEngine, "acknowledge_cancelled", lambda self, stream, positions: 0),
    ):
        yield


@contextmanager
def _cancelled_before_it_is_stored() -> Iterator[None]:
    """A cancellation is answered as done before the cursor's record has it."""

    def delete_and_store(self: Any, positions: Any, seal: int, done: Callable[[Kept], None]) -> None:
        done(Kept.YES)

    with replaced(ServedSubscription, "delete_and_store", delete_and_store):
        yield


@contextmanager
def _cancelled_too_late() -> Iterator[None]:
    """A message that a consumer has counts as waiting."""

    def sort(self: Any, asked: Any) -> Any:
        found = original(self, asked)
        found.waiting |= found.too_late
        found.too_late = set()
        return found

    original = ShimTracker._sort
    with replaced(ShimTracker, "_sort", sort):
        yield


@contextmanager
def _former_time_holds() -> Iterator[None]:
    """A moved message that is read leaves at its own time."""
    with replaced(ShimTracker, "_time_of", lambda self, position, own_ms: own_ms):
        yield


@contextmanager
def _former_life() -> Iterator[None]:
    """A subscription that was deleted and is made again has the index of its former life."""

    def subscription(self: Any, name: SubscriptionName, incarnation: bytes) -> DelayIndex:
        index = self.get(name)
        if index is not None:
            index.incarnation = incarnation
        return original(self, name, incarnation)

    original = Catalog.subscription
    with (
        replaced(Catalog, "subscription", subscription),
        replaced(Changes, "clear", lambda self: None),
    ):
        yield


@contextmanager
def claims_not_compared() -> Iterator[None]:
    """Only a mark-delete position that has gone back shows that Pulsar was restored."""
    with replaced(histories, "_broken_claims", lambda index, request: None):
        yield


@contextmanager
def lost_claim_not_told() -> Iterator[None]:
    """7a042d5: an index that had lost its identity to damage went on after Pulsar was restored."""
    with replaced(histories, "LOST_CLAIM", None):
        yield


@contextmanager
def _lost_half_the_time(name: str) -> Iterator[None]:
    """Half of the calls of a method of the broker's are lost."""

    def call(self: Any) -> None:
        if self.broker.kernel.numbers.random() < 0.5:
            original(self)

    original = getattr(ServedSubscription, name)
    with replaced(ServedSubscription, name, call):
        yield


@contextmanager
def _loss_of_former_history() -> Iterator[None]:
    """Nor does who listens know of claims: what is met is what becomes of messages."""
    with claims_not_compared(), replaced(Belief, "_empty_if_of_another_history", lambda self, request: None):
        yield


@dataclass(frozen=True)
class Plant:
    """A bug to plant, and where to look for it: the kinds of faults, and settings of the world.

    says: what the check that meets it says, so that a broken plant does not pass for found.
    or_says: what it says where something else shows it first.
    commit: where this project had it repaired, "" for one that it never had.
    """

    name: str
    plant: Callable[[], AbstractContextManager[None]]
    says: str
    faults: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    commit: str = ""
    or_says: tuple[str, ...] = ()

    def is_met_by(self, failure: str) -> bool:
        """True if a history has failed of it."""
        return any(says in failure for says in (self.says, *self.or_says))


_LOG = {"index_log": True, "shared_daemon": False, "daemon_wait_ms": 10_000}
"""Index logs, and a daemon for each broker, so that they are read."""
_MUCH_IN_BLOCKS = {
    "journal_budget_bytes": 500,
    "persist_age_ms": 200,
    "staging_budget_bytes": 240,
    "slice_width_ms": 100,
    "daemon_start_ms": 1,
}
"""Hardly anything stays in the journal."""
_MUCH_CREDIT = {"credit_max": 1_000_000}
"""What is due is handed out at once, so that the check that is named meets the plant first."""

_QUICK = {
    **{"socket_latency_us": 200, "socket_capacity": 200_000, "piece_bytes": 0, "read_io_us": 100},
    **{"write_us": 10, "job_delay_us": 10, "loop_lag_us": 10, "storage_retry_ms": 10, "retry_ms": 10},
    **{"credit": 20_000, "near_max": 1_000, "pending_max": 1_000_000, "permits": 50, "ack_after_ms": 20},
    **{"maintain_interval_ms": 100, "index_log": False, **_MUCH_CREDIT},
}
"""Nothing is slow, so that little lateness is allowed."""

_UNHEARD = {
    **{"shared_daemon": True, "index_log": False, "claims_max": 64, "ranges_max": 1, "subscriptions": 1},
    **{"daemon_wait_ms": 10_000, "ack_after_ms": 20, "permits": 50, "clients": 2, "near_max": 1_000},
}
"""The daemon alone knows what was acknowledged last, and the shim waits for it."""

PLANTS = (
    Plant(
        "acknowledgements are believed over a reset",
        _believed_over_a_reset,
        "is acknowledged, but it must be",
        ("seek",),
        {},
        "8d1f268",
    ),
    Plant(
        "what a reset's own record has is believed",
        _left_as_loaded,
        "lost: ",
        ("seek", "crash"),
        {},
        "d57358d",
    ),
    Plant(
        "a tracker puts a seal over what a reset's own record has",
        _sealed_before_the_look,
        "lost: ",
        ("undone",),
        {"early_tracker_us": 100, "cursor_io_us": 20_000},
        "122668c",
    ),
    Plant(
        "a lost seal is always taken for a reset",
        _lost_seal_is_a_resets,
        "is reset once more, which nobody had reset",
        ("forward",),
        {},
        "6b0199f",
    ),
    Plant(
        "the epoch is a wall clock",
        _epoch_of_the_clock,
        "at the end",
        ("clock", "move"),
        {"shared_daemon": True},
        "8d1f268",
    ),
    Plant(
        "a killed broker's last words are dropped",
        _rest_not_read,
        "is unknown to it, but it must be",
        ("crash", "consumer"),
        {
            "socket_latency_us": 100_000,
            "session_timeout_ms": 300,
            "ack_after_ms": 20,
            "piece_bytes": 7,
            **_MUCH_CREDIT,
        },
        "e5fa191",
        or_says=("is held, but it must be acknowledged",),  # an ACK is among the last words as an ADD is
    ),
    Plant(
        "a failed persist that was applied counts later",
        _applied_but_failed,
        "is held, but it must be unknown to it",
        ("disk", "crash"),
        {
            "ack_after_ms": 20,
            "persist_age_ms": 50,
            "maintain_interval_ms": 10,
            "carry_ms": 0,
            "slice_width_ms": 100,
            "slice_width_auto": False,
            "staging_budget_bytes": 240,
            "write_piece_bytes": 524_288,
            "cursor_io_us": 200,
            "cursor_flush_ms": 1_000,
            "permits": 50,
            "daemon_start_ms": 1,
            **_MUCH_CREDIT,
        },
        "fea1ddf",
    ),
    Plant(
        "acknowledgements of a failed persist are not put back",
        acknowledgements_not_put_back,
        "is unknown to it, but it must be acknowledged",
        ("persist",),
        {},
        # Positions that a mark-delete or a seal had taken from the bitmap are in it again.
        or_says=("is acknowledged, but it must be unknown to it", "up to the mark-delete position"),
    ),
    Plant(
        "credit after CLOSE",
        _credit_after_close,
        "ERROR on a stream that has ended",
        ("move",),
        {},
        "f029f7f",
    ),
    Plant(
        "DURABLE before the write",
        _durable_too_early,
        "is unknown to it, but it must be",
        ("power",),
        {"write_us": 10_000},
    ),
    Plant("a commit that is not synced", _commit_unsynced, "but it must be", ("power",)),
    Plant("credit is ignored", _credit_ignored, "more DUE entries than there is credit", ("crash",)),
    Plant(
        "what was handed out is not handed out again after OPEN",
        _rewind_forgotten,
        "is held and earlier",
        ("crash",),
        _MUCH_CREDIT,
        or_says=("again, or of what is in flight",),  # it is in flight for good
    ),
    Plant(
        "what a persist leaves staged is lost", _carry_lost, "is held and earlier", ("crash",), _MUCH_CREDIT
    ),
    Plant(
        "credit comes back in eighths",
        given_back_in_eighths,
        "lost: ",
        ("crash",),
        {"credit": 100, "credit_max": 7},
        "3404f5f",
    ),
    Plant(
        "a wish to read is lost",
        partial(_lost_half_the_time, "read_more"),
        "late: ",
        ("move",),
        _QUICK,
        or_says=("lost: ",),  # nothing else comes that has it sent
    ),
    Plant(
        "a wake-up is lost",
        partial(_lost_half_the_time, "_on_wake"),
        "late: ",
        ("move",),
        _QUICK,
        or_says=("lost: ",),
    ),
    Plant("the shim's clock is ahead", _clock_ahead, "ms early", ("clock",)),
    Plant(
        "the pointer of an index log is not compared",
        _pointer_not_compared,
        "of another daemon was not read",
        ("move",),
        _LOG,
    ),
    Plant(
        "what waits for an index log counts as being in it",
        _waiting_counts,
        "is unknown to it, but it must be",
        ("move",),
        _LOG,
    ),
    Plant(
        "what is written beside a snapshot is not in the log",
        _forgotten_beside_a_snapshot,
        "is unknown to it, but it must be",
        ("move",),
        _LOG,
        # An ACK may be written beside it as an ADD may.
        or_says=("is held, but it must be acknowledged", "held and acknowledged at once"),
    ),
    Plant(
        "what waits for an index log has no bound",
        _waits_without_a_bound,
        "bytes wait for an index log",
        ("move",),
        {**_LOG, "log_queue_bytes": 100, "log_interval_ms": 500, "log_io_us": 50_000},
    ),
    Plant(
        "what is damaged is kept without a bound",
        _kept_aside_without_a_bound,
        "damaged bytes, 50 are allowed",
        ("damage", "crash"),
        {"quarantine_bytes": 50},
    ),
    Plant(
        "the shim reads on though it is full",
        _never_full,
        "entries wait for DURABLE",
        ("move",),
        {"pending_max": 5, "read_batch": 3, "socket_latency_us": 100_000, "commit_interval_us": 50_000},
    ),
    Plant("what was let go of is not told", _not_told_unheld, "lost: ", ("rebuild",)),
    Plant(
        "what a crash leaves of a restoration stays on the disk",
        landed_without_a_mark,
        "has stored what is of no subscription",
        ("log", "crash"),
        {**_LOG, **_MUCH_IN_BLOCKS, "log_piece_bytes": 50, "log_read_bytes": 1, "session_timeout_ms": 1_000},
        "3d79719",
        or_says=("held but nowhere to be found",),
    ),
    Plant(
        "a chain that cannot be read ends the connection",
        _chain_must_be_readable,
        "StorageError('too many files are open')",
        ("reads", "crash"),
        _LOG,
        "3d79719",
    ),
    Plant(
        "an append that is given up ends another one",
        _end_of_another_append,
        "InvalidStateError('invalid state')",
        ("objects", "move"),
        {**_LOG, "log_objects": True, "log_piece_bytes": 50, "log_io_us": 50_000},
        "6060a35",
    ),
    Plant(
        "the last object of an index log is not read",
        _last_object_not_read,
        "but it must be",
        ("objects", "move"),
        {**_LOG, "log_objects": True},
        or_says=("loses blocks: ledger",),  # it is a record of blocks
    ),
    Plant(
        "a log that is behind takes what was acknowledged since",
        _acknowledgements_gone,
        "but it must be acknowledged",
        ("behind",),
        _LOG,
        "0eecee7",
        # Nor does it take what a later owner has held again.
        or_says=("is held, but it must be unknown to it", "is acknowledged, but it must be"),
    ),
    Plant(
        "an index log is looked for where it is not",
        _looked_for_elsewhere,
        "but it is where it was made",
        ("objects", "move"),
        {**_LOG, "log_objects": True},
        "f074aeb",
    ),
    Plant(
        "a new life has the former one's index",
        _former_life,
        "but it must be unknown to it",
        ("subscription",),
        {},
        or_says=("an index is said to be of another history, and there is one",),
    ),
    Plant(
        "the claims of owners are not compared",
        claims_not_compared,
        "but it must be unknown to it",
        ("backup", "crash"),
    ),
    Plant("a pause is not stored", _pause_not_stored, "leaves while it is paused", ("pause",)),
    Plant(
        "what is read when it is due leaves while paused",
        _read_leaves_while_paused,
        "leaves while it is paused",
        ("pause",),
    ),
    Plant("moved times are not read by a new owner", _overrides_forgotten, "ms early", ("change", "move")),
    Plant(
        "a move is answered before it is stored",
        _answered_before_it_is_stored,
        "ms early",
        ("change", "crash"),
    ),
    Plant("a move is told to the daemon only", _daemon_alone_is_told, "ms early", ("change",)),
    Plant("a moved message leaves at its own time", _former_time_holds, "ms early", ("change",)),
    Plant(
        "what is cancelled stays in the index",
        _cancelled_and_held,
        "is held, but it must be",
        ("change", "wire"),
    ),
    Plant(
        "a cancellation is answered before it is stored",
        _cancelled_before_it_is_stored,
        "comes though it is cancelled",
        ("change", "crash"),
        {
            **{"shared_daemon": False, "index_log": False, "ack_after_ms": 20, "cursor_flush_ms": 60_000},
            **{"session_timeout_ms": 100, "subscriptions": 1, "permits": 50},
        },
    ),
    Plant(
        "what a consumer has is cancelled",
        _cancelled_too_late,
        "is cancelled though a consumer has it",
        ("change",),
    ),
    Plant(
        "a skip is taken for a reset",
        moves_taken_for_resets,
        "comes again though the daemon",
        ("unheard",),
        _UNHEARD,
    ),
    Plant(
        "a reset is taken for a skip",
        _resets_taken_for_moves,
        "is deleted in the cursor though it is owed",
        ("unheard",),
        {**_UNHEARD, "reset_clears": False},
    ),
    Plant(
        "the daemon forgets what it knows under a former seal",
        _former_seal_not_told,
        "comes again though the daemon knew",
        ("unheard",),
        {**_UNHEARD, "heartbeat_ms": 500},
    ),
    Plant(
        "what was acknowledged before Pulsar was put back is deleted",
        _loss_of_former_history,
        "is deleted in the cursor though it is owed",
        ("backup", "consumer"),
        {},
        or_says=("DUE says", "which the topic does not have"),
    ),
)
