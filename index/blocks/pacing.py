"""The share of time for compactions while spills are always waiting: docs/decisions/paced-compaction.md.

A spill adds a run to each slice that it touches, a compaction removes some. Compactions get time in the
pauses of spills, by the most crowded slice's number of runs: none up to `runs_soft`, as much as the spill
half-way to `runs_max`, nearly all beyond. The number of runs settles low where few rewrites are needed, and
higher where many are: each compaction then merges more runs at once.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.index.clock import Clock

_SHARE_MAX = 0.9
"""A spill goes on, however crowded the slices are."""

_ALLOWANCE_MAX_NS = 1_000_000_000
"""Unused time, for lack of something to compact, is saved up to this much."""

_TURN_MIN_NS = 2_000_000
"""A compaction does not begin with less time."""

Pause = Callable[[], bool]
"""Asked often by the compacting thread; True makes it pause."""

Merge = Callable[[Pause], None]
"""Continues a compaction until it ends or must pause. Raises StorageError."""


class CompactionPace:
    """How long compactions may run in return for the time of spills.

    Pure: the caller gives times. Invariant: the allowance is never negative, and only spills increase it.
    """

    def __init__(self, runs_soft: int, runs_max: int) -> None:
        self._runs_soft = runs_soft
        self._runs_max = runs_max
        self._allowance_ns = 0

    def share(self, runs: int) -> float:
        """Share of the time for compactions, with so many runs in the most crowded slice."""
        wanted = (runs - self._runs_soft) / (self._runs_max - self._runs_soft)
        return min(max(wanted, 0.0), _SHARE_MAX)

    def spilled(self, took_ns: int, runs: int) -> None:
        """Account for the duration of a spill."""
        share = self.share(runs)
        self._allowance_ns += int(took_ns * share / (1.0 - share))
        self._allowance_ns = min(self._allowance_ns, _ALLOWANCE_MAX_NS)

    def compacted(self, took_ns: int) -> None:
        """Account for the duration of a compaction."""
        self._allowance_ns = max(0, self._allowance_ns - took_ns)

    @property
    def allowance_ns(self) -> int:
        """Time for a compaction while others wait; 0 if too short to be useful."""
        return self._allowance_ns if self._allowance_ns >= _TURN_MIN_NS else 0


class Interleaved:
    """Continues a compaction in the pauses of a spill, as long as the pace allows.

    An error of the compaction ends it, not the spill; `error` keeps it. For one job, in one thread.
    """

    def __init__(self, clock: Clock, pace: CompactionPace, runs: int, merge: Merge) -> None:
        self.error: Exception | None = None
        self.took_ns = 0
        self._clock = clock
        self._pace = pace
        self._runs = runs
        self._merge = merge
        self._since_ns = clock.monotonic_ns()

    def between(self) -> None:
        """Run the compaction; called by the spill where it can be interrupted."""
        now_ns = self._clock.monotonic_ns()
        self._spilled(now_ns)
        allowance_ns = self._pace.allowance_ns
        if not allowance_ns or self.error is not None:
            return
        try:
            self._merge(lambda: self._clock.monotonic_ns() - now_ns >= allowance_ns)
        except Exception as error:  # applying the compaction raises any error again
            self.error = error
        self._since_ns = self._clock.monotonic_ns()
        self._pace.compacted(self._since_ns - now_ns)
        self.took_ns += self._since_ns - now_ns

    def end(self) -> None:
        """End the pauses; called after the spill."""
        self._spilled(self._clock.monotonic_ns())

    def _spilled(self, now_ns: int) -> None:
        self._pace.spilled(now_ns - self._since_ns, self._runs)
        self._since_ns = now_ns
