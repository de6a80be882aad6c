"""Bugs to plant in upkeep, what rebuilds and connections do, and the records of index logs. See `plants`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sim.replaced import replaced
from tidegate.index.blocks.compactor import Compactor
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.entries.entry import Entries
from tidegate.index.format import keys
from tidegate.index.log import writer
from tidegate.index.log.records import encode_operations
from tidegate.index.names import SubscriptionName
from tidegate.index.state.positions import PositionSet
from tidegate.index.store import Batch
from tidegate.plugin.daemon.brokers import Brokers
from tidegate.plugin.daemon.connection import Connection
from tidegate.plugin.daemon.index_logs.stream_log import StreamLog
from tidegate.plugin.daemon.ingestion import Ingestion
from tidegate.plugin.daemon.stream import Link
from tidegate.plugin.wire.messages import Hello


@contextmanager
def journal_stays() -> Iterator[None]:
    """A persist leaves the records that it covers in the store."""

    def delete_range(self: Batch, start: bytes, end: bytes) -> None:
        if start[:1] != keys.JOURNAL:
            original(self, start, end)

    original = Batch.delete_range
    with replaced(Batch, "delete_range", delete_range):
        yield


@contextmanager
def nothing_is_merged() -> Iterator[None]:
    """No slice counts as crowded."""
    with replaced(Compactor, "crowding", property(lambda self: None)):
        yield


@contextmanager
def log_never_begun() -> Iterator[None]:
    """Nobody wakes the writer of an index log."""
    with replaced(StreamLog, "wake", lambda self: None):
        yield


@contextmanager
def log_in_no_grammar() -> Iterator[None]:
    """The records of an index log lack their first byte."""

    def encode(operations: Any) -> bytes:
        return original(operations)[1:]

    original = encode_operations
    with replaced(writer, "encode_operations", encode):
        yield


@contextmanager
def put_in_but_for_the_first() -> Iterator[None]:
    """A rebuild's blocks lose an entry."""

    def add(self: Any, name: SubscriptionName, part: Entries, fresh: PositionSet) -> int:
        return original(self, name, part.part(1, len(part)), fresh)

    original = Ingestion._add
    with replaced(Ingestion, "_add", add):
        yield


@contextmanager
def reads_on() -> Iterator[None]:
    """A connection takes no notice of a peer that takes nothing."""
    with replaced(Connection, "pause_writing", lambda self: None):
        yield


@contextmanager
def repaired_for_ever() -> Iterator[None]:
    """A persist does not forget what it has repaired."""
    with replaced(Leftovers, "done", lambda self, remains: None):
        yield


@contextmanager
def brokers_not_known() -> Iterator[None]:
    """A broker that connects again keeps its former connection."""

    def greet(self: Any, connection: Link, hello: Hello) -> None:
        original(self, connection, hello)
        del self._connected[hello.name]

    original = Brokers.greet
    with replaced(Brokers, "greet", greet):
        yield
