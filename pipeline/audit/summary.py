"""The figures of an audit: counts, lateness and gaps, by subscription and in total.

Pure. Small tables of counts, from one run over everything or from a stream's batches, make a summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tidegate.pipeline.audit.judge import Verdict
from tidegate.plugin.checks import Gaps, Lateness, RepeatCause

Int64 = npt.NDArray[np.int64]
_NO_TIMES = np.zeros(0, np.int64)


def _no_gaps() -> Gaps:
    return Gaps(_NO_TIMES, _NO_TIMES)


@dataclass
class Figures:
    """The fates of the messages at one subscription.

    verdicts: rows of each verdict. causes: repeated receipts by cause. lateness: the number of messages for
    each lateness in ms.
    """

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    causes: Counter[RepeatCause] = field(default_factory=Counter)
    early: int = 0
    earliest_ms: int = 0
    lateness: Counter[int] = field(default_factory=Counter)
    gaps: Gaps = field(default_factory=_no_gaps)

    @property
    def receipts(self) -> int:
        """The number of recorded deliveries."""
        seen = (Verdict.DELIVERED, Verdict.REPEATED, Verdict.UNKNOWN)
        return sum(self.verdicts[one] for one in seen)

    def late(self) -> Lateness:
        """Percentiles of all first receipts of delayed messages."""
        values = np.fromiter(self.lateness.keys(), np.int64, len(self.lateness))
        counts = np.fromiter(self.lateness.values(), np.int64, len(self.lateness))
        return Lateness.of(values, counts, per_ms=1)

    def add(self, other: Figures) -> None:
        """Add the figures of other messages; gaps are concatenated."""
        self.verdicts += other.verdicts
        self.causes += other.causes
        self.early += other.early
        self.earliest_ms = max(self.earliest_ms, other.earliest_ms)
        self.lateness += other.lateness
        self.gaps = Gaps(
            np.concatenate([self.gaps.begin, other.gaps.begin]),
            np.concatenate([self.gaps.end, other.gaps.end]),
        )

    def as_json(self) -> dict[str, Any]:
        """The figures by their names in the JSON result."""
        found = self.verdicts
        late = self.late()
        return {
            "received": self.receipts,
            "delivered": found[Verdict.DELIVERED],
            "lost": found[Verdict.LOST] - found[Verdict.FOUND],
            "early": self.early,
            "earliest_ms": self.earliest_ms,
            "repeated": found[Verdict.REPEATED],
            "repeated_by_cause": {cause.name.lower(): self.causes[cause] for cause in RepeatCause},
            "unknown": found[Verdict.UNKNOWN],
            "out_of_order": found[Verdict.OUT_OF_ORDER],
            "pending": found[Verdict.PENDING],
            "lateness_ms": {
                "count": late.count,
                "p50": round(late.p50_ms, 3),
                "p99": round(late.p99_ms, 3),
                "max": round(late.max_ms, 3),
            },
            "gaps": {
                "count": len(self.gaps.begin),
                "longest_ms": int(self.gaps.lengths.max(initial=0)),
                "total_ms": int(self.gaps.lengths.sum()),
            },
        }


@dataclass
class Summary:
    """An audit's result. ``sent``: the number of sent messages, without duplicates."""

    sent: int
    sent_twice: int
    by_subscription: dict[str, Figures]

    @property
    def passed(self) -> bool:
        """True if no message was lost or early."""
        return all(
            not one.early and one.verdicts[Verdict.LOST] <= one.verdicts[Verdict.FOUND]
            for one in self.by_subscription.values()
        )

    def together(self) -> Figures:
        """The figures of all subscriptions together."""
        whole = Figures()
        for one in self.by_subscription.values():
            whole.add(one)
        return whole

    def as_json(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "passed": self.passed,
            "sent": self.sent,
            "sent_twice": self.sent_twice,
            **self.together().as_json(),
            "subscriptions": {name: one.as_json() for name, one in sorted(self.by_subscription.items())},
        }


def figures_of(
    counts: Mapping[str, list[tuple[int, bool, int | None, int, int]]],
    lateness: Mapping[str, list[tuple[int, int]]],
) -> dict[str, Figures]:
    """Figures by subscription, without gaps.

    counts: (verdict, early, cause, rows, most milliseconds early) of each subscription. lateness:
    (milliseconds late, messages).
    """
    found: dict[str, Figures] = {}
    for name, rows in counts.items():
        one = found.setdefault(name, Figures())
        for verdict, early, cause, number, earliest_ms in rows:
            one.verdicts[Verdict(verdict)] += number
            if cause is not None:
                one.causes[RepeatCause(cause)] += number
            if early:
                one.early += number
                one.earliest_ms = max(one.earliest_ms, earliest_ms)
    for name, late in lateness.items():
        found.setdefault(name, Figures()).lateness.update(dict(late))
    return found
