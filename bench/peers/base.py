"""The interface of the peers written here, and the figures that every peer reports.

A peer keeps entries (deliver_at_ms, ledger_id, entry_id) until they are due, in its own process with five
arguments, ``PEER PHASE DIR WORKLOAD COUNT``:

- DIR has the workload, ``workload.{deliver_at_ms,ledger_id,entry_id,arrive_at_ms}.npy`` (int64, in order of
  arrival), and the same columns as raw little-endian ``.bin``; the peer's own files go to DIR/data;
- PHASE is one of ``PHASES``; at its end the process prints one line of JSON and nothing else:
  ``FillFigures``, ``RecoverFigures``, ``DrainFigures`` or ``LatenessFigures``;
- then it reads its standard input: at ``settle`` it finishes its background work (compaction) and prints
  ``{"settled": true}``; at ``drain``, possible after ``fill``, it runs that phase in the same process; it
  ends with the input. Kill -9 may come at any time;
- the environment has ``BENCH_STARTED_NS`` (wall clock before process and server were started),
  ``BENCH_BUDGET_S`` (a longer phase stops by itself and says ``stopped``), ``BENCH_LATENESS_S`` (seconds of
  the lateness phase) and, for a server's client, ``BENCH_SERVER_PID``.

Phases:

- ``fill`` adds the workload in batches of ``BATCH``, each as durable as the peer makes it before the next;
- ``recover`` opens the folder and pops once, at the earliest deliver_at_ms + 1 s;
- ``drain`` pops everything and removes each popped batch, by a simulated clock that goes to the
  deliver_at_ms of every 10,000th entry, at most ``POP_LIMIT`` at a time until a pop is empty;
- ``lateness`` adds the workload, moved so that none is due, then entries due at ``LATENESS_PER_S`` in real
  time, and runs the peer's own loop.

A pop is early if deliver_at_ms is after the clock's time, out of order if it follows a later one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from tidegate.index import Clock, Entries, Int64Array

BATCH = 10_000
"""Entries of one add."""
POP_LIMIT = 8_192
"""Most entries of one pop."""
LATENESS_PER_S = 2_000
FAST_TICK_MS = 10
"""The short tick of peers that may look faster than their field does."""
FILL, RECOVER, DRAIN, LATENESS = PHASES = ("fill", "recover", "drain", "lateness")
COLUMNS = ("deliver_at_ms", "ledger_id", "entry_id", "arrive_at_ms")


@dataclass(frozen=True)
class PeerInfo:
    """A peer in words, for the tables' notes.

    scheme: its origin and principle, a sentence without a full stop. durability: a batch's guarantee once
    `add` has returned. survives_kill: something is recoverable after kill -9. tick_ms: the usual interval of
    its looks for due entries; 0 if it waits for the earliest one's time. may_look_faster: the tick is a
    habit, not part of the scheme: lateness is also measured with a short one. slack_ms: the lateness by
    design: tick or rounding.
    """

    name: str
    scheme: str
    durability: str
    survives_kill: bool = True
    tick_ms: int = 0
    slack_ms: int = 0
    may_look_faster: bool = False


class Peer(ABC):
    """A way of keeping delayed entries, for one thread. Made by a class that takes (folder, clock).

    The folder exists; the peer opens data of an earlier life in it. Times are ms since the epoch; `clock` is
    simulated in all phases but lateness.
    """

    info: ClassVar[PeerInfo]

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self.clock = clock

    @abstractmethod
    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:
        """Take a batch; at return it is as durable as `info.durability` says."""

    @abstractmethod
    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out at most `limit` entries due at `now_ms`. Empty: there are no more now."""

    def done(self, popped: Entries) -> None:  # noqa: B027 some remove what they hand out
        """The entries of the last `pop_due` are delivered: remove them. Called before the next one."""

    def flush(self) -> None:  # noqa: B027 most have nothing left to write
        """Make everything as durable as `info.durability` says, if `done` has deferred that."""

    def next_due_ms(self) -> int | None:
        """The due time of the earliest entry; None without one. Called only for peers with `tick_ms` 0."""
        return None

    @abstractmethod
    def count(self) -> int:
        """The number of entries that it knows. May be slow."""

    def maintain(self) -> None:  # noqa: B027 most have no background work
        """Called between operations, for background work that the peer's owner has to drive."""

    def settle(self) -> None:  # noqa: B027 most have no background work
        """Finish background work, so that the files reach their smallest size."""

    def close(self) -> None:  # noqa: B027 most hold nothing
        """Release all resources. Not called before a kill -9."""

    def remarks(self) -> dict[str, float]:
        """Further figures of the fill phase, by title with unit."""
        return {}


class Figures(BaseModel):
    """A phase's report. Memory is the process's, or the server's for a server's client."""

    model_config = ConfigDict(extra="forbid")


class FillFigures(Figures):
    """``longest_pause_ms`` is the longest single add, with its durability."""

    added: int
    took_s: float
    adds_per_s: float
    cpu_s: float
    rss_before_bytes: int
    peak_rss_bytes: int
    longest_pause_ms: float
    stopped: bool = Field(default=False, description="the time budget was over before the workload was")
    remarks: dict[str, float] = Field(default_factory=dict)


class RecoverFigures(Figures):
    """``first_pop_s`` counts from BENCH_STARTED_NS; None if no entry could be popped."""

    first_pop_s: float | None
    popped: int
    held_after: int = Field(description="entries known after the restart, those of the first pop included")


class DrainFigures(Figures):
    """``again``: entries handed out more than once; ``missing``: those never handed out."""

    popped: int
    took_s: float
    pops_per_s: float
    cpu_s: float
    rss_before_bytes: int
    peak_rss_bytes: int
    longest_pause_ms: float
    early: int
    out_of_order: int
    missing: int
    again: int = 0
    stopped: bool = False


class LatenessQuantiles(Figures):
    """Handed out minus deliver_at, in ms."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class LatenessFigures(Figures):
    """Handed out minus deliver_at, in ms, and the cost of a look when nothing is due."""

    handed_out: int
    missing: int
    early: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    quantiles_ms: list[float] = Field(description="bench.harness.stats.quantiles of all")
    cpu_s: float
    backlog: int
    empty_look_us: float | None = None
    fast: LatenessQuantiles | None = Field(default=None, description="with FAST_TICK_MS instead of its tick")
    stopped: bool = False
