"""All reports so far of an audit beside production, passed from round to round as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from tidegate.pipeline.audit.judge import Verdict
from tidegate.pipeline.audit.summary import Figures, Summary
from tidegate.pipeline.errors import TraceError
from tidegate.plugin.checks import RepeatCause

_LATENESS_EXACT_MS = 10_000


@dataclass
class Totals:
    """All reports so far. latest_ms: the latest time of any record."""

    sent: int = 0
    sent_twice: int = 0
    unreadable: int = 0
    latest_ms: int = 0
    watermark_ms: int = 0
    by_subscription: dict[str, Figures] = field(default_factory=dict)

    def summary(self) -> Summary:
        """The totals as an audit's summary."""
        return Summary(self.sent, self.sent_twice, self.by_subscription)

    def to_json(self) -> str:
        """JSON for the next round."""
        return json.dumps(
            {
                "version": 1,
                "sent": self.sent,
                "sent_twice": self.sent_twice,
                "unreadable": self.unreadable,
                "latest_ms": self.latest_ms,
                "watermark_ms": self.watermark_ms,
                "subscriptions": {
                    name: {
                        "verdicts": {one.name: number for one, number in figures.verdicts.items()},
                        "causes": {one.name: number for one, number in figures.causes.items()},
                        "early": figures.early,
                        "earliest_ms": figures.earliest_ms,
                        "lateness": sorted(figures.lateness.items()),
                    }
                    for name, figures in self.by_subscription.items()
                },
            }
        )

    @classmethod
    def of_json(cls, text: str) -> Totals:
        """The inverse of ``to_json``. Raises ``TraceError``."""
        try:
            told = json.loads(text)
            if told["version"] != 1:
                raise TraceError(f"the checkpoint was written by a newer version ({told['version']})")
            figures = {
                name: Figures(
                    Counter({Verdict[key]: number for key, number in one["verdicts"].items()}),
                    Counter({RepeatCause[key]: number for key, number in one["causes"].items()}),
                    one["early"],
                    one["earliest_ms"],
                    Counter(dict(map(tuple, one["lateness"]))),
                )
                for name, one in told["subscriptions"].items()
            }
            rest = ("sent", "sent_twice", "unreadable", "latest_ms", "watermark_ms")
            return cls(**{name: int(told[name]) for name in rest}, by_subscription=figures)
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"the totals in the checkpoint cannot be read: {error}") from error


def coarse(lateness: Counter[int]) -> Counter[int]:
    """Lateness beyond 10 s, rounded to 0.1 %: the totals of a year stay small."""
    if max(map(abs, lateness), default=0) < _LATENESS_EXACT_MS:
        return lateness
    found = Counter[int]()
    for late_ms, number in lateness.items():
        step = 10 ** max(len(str(abs(late_ms))) - 4, 0)
        found[late_ms // step * step] += number
    return found
