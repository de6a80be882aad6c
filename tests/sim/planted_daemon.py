"""Bugs to plant in the index and the daemon. See `plants`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.replaced import replaced
from tidegate.index.blocks import persist
from tidegate.index.blocks.block_writer import BlockWriter
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.persister import Persister
from tidegate.index.catalog import catalog
from tidegate.index.catalog.catalog import Catalog
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.journal.damaged_values import set_aside
from tidegate.index.journal.journal import Commit
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
from tidegate.plugin.daemon.session import Session
from tidegate.plugin.wire.messages import Move


@contextmanager
def rest_not_read() -> Iterator[None]:
    """e5fa191: a killed broker's last frames were dropped with its connection."""

    def read_rest(self: Any) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    with replaced(Connection, "read_rest", read_rest):
        yield


@contextmanager
def applied_but_failed() -> Iterator[None]:
    """fea1ddf: a persist's writes counted later, though reported as failed."""

    with (
        replaced(Leftovers, "orphan", lambda self, keys: None),
        replaced(Leftovers, "doubt", lambda self, slices: None),
    ):
        yield


@contextmanager
def acknowledgements_not_put_back() -> Iterator[None]:
    """No later persist had a failed one's acknowledgements either."""

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
def durable_too_early() -> Iterator[None]:
    """Frames count as durable when their commit begins."""

    def begin(self: Any) -> None:
        original(self)
        if self._writing is not None:
            for stream in list(self._committing):
                durability = stream.session.durable(self._writing.token)
                if durability is not None:
                    self._news.on_durable(stream, durability)

    original = Committer._begin
    with replaced(Committer, "_begin", begin):
        yield


@contextmanager
def commit_unsynced() -> Iterator[None]:
    """A commit is written and not synced."""

    def run(self: Any) -> None:
        write = self._store.write
        with replaced(self._store, "write", lambda batch, *, sync: write(batch, sync=False)):
            original(self)

    original = Commit.run
    with replaced(Commit, "run", run):
        yield


@contextmanager
def credit_ignored() -> Iterator[None]:
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
def rewind_forgotten() -> Iterator[None]:
    """After OPEN, entries handed out on a former connection are not handed out again."""
    with replaced(PositionState, "rewind", lambda self, in_flight: None):
        yield


@contextmanager
def carry_lost() -> Iterator[None]:
    """Entries left staged by a persist are not poppable after it."""
    with replaced(Timeline, "carry", lambda self, entries: None):
        yield


@contextmanager
def believed_over_a_reset() -> Iterator[None]:
    """Acknowledgements were believed, whatever had become of the cursor since."""

    def begin_generation(self: Any, generation: int) -> None:
        self.generation = generation

    with replaced(PositionState, "begin_generation", begin_generation):
        yield


@contextmanager
def kept_aside_without_a_bound() -> Iterator[None]:
    """All damaged values are kept aside."""

    def keep(store: Any, damaged: Any, budget_bytes: int) -> Batch:
        return set_aside(store, damaged, 1 << 40)

    with replaced(persist, "set_aside", keep), replaced(catalog, "set_aside", keep):
        yield


@contextmanager
def not_told_unheld() -> Iterator[None]:
    """The broker does not learn of positions that the index has let go of."""
    with replaced(DelayIndex, "take_unheld", lambda self: PositionSet()):
        yield


@contextmanager
def taken_for_foreign() -> Iterator[None]:
    """The simulator's own find: a directory of ours without its format record passed for another's."""
    with replaced(keys, "is_ours", lambda key: False):
        yield


@contextmanager
def former_life() -> Iterator[None]:
    """A subscription deleted and made again has the index of its former life."""

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
    """Only a mark-delete position that has gone back shows a restoration of Pulsar."""
    with replaced(histories, "_broken_claims", lambda index, request: None):
        yield


@contextmanager
def lost_claim_not_told() -> Iterator[None]:
    """7a042d5: an index that had lost its identity to damage went on after a restoration of Pulsar."""
    with replaced(histories, "LOST_CLAIM", None):
        yield


@contextmanager
def pieces_not_counted() -> Iterator[None]:
    """Each intent of a job replaces the one before: recovery does not know its keys."""

    def write(self: Any, *, sync: bool = False) -> None:
        self._pieces = 0
        original(self, sync=sync)

    original = BlockWriter.write
    with replaced(BlockWriter, "write", write):
        yield


@contextmanager
def moved_and_in_flight() -> Iterator[None]:
    """A moved position that was in flight counts as in flight when it is added again."""

    def keep_moved(self: Any, change: Move) -> None:
        before = self._in_flight_unheld.snapshot()
        original(self, change)
        self._in_flight_unheld = before

    original = Session._keep_moved
    with replaced(Session, "_keep_moved", keep_moved):
        yield
