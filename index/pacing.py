"""How much of the time compactions get while there is always something to spill.

A spill adds a run to each slice that it touches, and a compaction takes some away: each entry is rewritten a
few times over its life. So compactions get time in the pauses of spills, the more the more runs the most
crowded slice has: nothing up to `runs_soft`, as much as the spill half-way to `runs_max`, nearly all beyond.
Where few rewrites are needed, that settles at few runs, where many are needed, at more: then each compaction
merges more runs at once, and is worth more. A spill that is interrupted often and shortly drains what is
staged evenly; a compaction between two spills would be felt.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegate.index.clock import Clock

_SHARE_MAX = 0.9
"""However crowded the slices are, a spill goes on."""

_ALLOWANCE_MAX_NS = 1_000_000_000
"""What could not be used for lack of something to compact is not saved up for ever."""

_TURN_MIN_NS = 2_000_000
"""A compaction that has been given less time than this does not begin."""

Pause = Callable[[], bool]
"""Asked often, in the thread that compacts; True makes it pause."""

Merge = Callable[[Pause], None]
"""Goes on with a compaction until it ends or is to pause. Raises StorageError."""


class CompactionPace:
    """Tells how long compactions may run in return for the time that spills have taken.

    Pure: times are told. Invariant: the allowance is never negative, and grows by spills only.
    """

    def __init__(self, runs_soft: int, runs_max: int) -> None:
        self._runs_soft = runs_soft
        self._runs_max = runs_max
        self._allowance_ns = 0

    def share(self, runs: int) -> float:
        """Which part of the time is for compactions, with so many runs in the most crowded slice."""
        wanted = (runs - self._runs_soft) / (self._runs_max - self._runs_soft)
        return min(max(wanted, 0.0), _SHARE_MAX)

    def spilled(self, took_ns: int, runs: int) -> None:
        """Spilling took so long."""
        share = self.share(runs)
        self._allowance_ns += int(took_ns * share / (1.0 - share))
        self._allowance_ns = min(self._allowance_ns, _ALLOWANCE_MAX_NS)

    def compacted(self, took_ns: int) -> None:
        """A compaction took so long."""
        self._allowance_ns = max(0, self._allowance_ns - took_ns)

    @property
    def allowance_ns(self) -> int:
        """How long a compaction may run now while somebody waits; 0 if that is not worth it."""
        return self._allowance_ns if self._allowance_ns >= _TURN_MIN_NS else 0


class Interleaved:
    """Goes on with a compaction in the pauses of a spill, for as long as the pace allows.

    What the compaction raises ends it, and not the spill: it is in `error` afterwards. Of one job, in one
    thread.
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
        """To be called by the spill when it can be interrupted."""
        now_ns = self._clock.monotonic_ns()
        self._spilled(now_ns)
        allowance_ns = self._pace.allowance_ns
        if not allowance_ns or self.error is not None:
            return
        try:
            self._merge(lambda: self._clock.monotonic_ns() - now_ns >= allowance_ns)
        except Exception as error:  # whatever it is, it is raised where the compaction is applied
            self.error = error
        self._since_ns = self._clock.monotonic_ns()
        self._pace.compacted(self._since_ns - now_ns)
        self.took_ns += self._since_ns - now_ns

    def end(self) -> None:
        """To be called when the spill is over."""
        self._spilled(self._clock.monotonic_ns())

    def _spilled(self, now_ns: int) -> None:
        self._pace.spilled(now_ns - self._since_ns, self._runs)
        self._since_ns = now_ns
