"""Checks of clocks, whose answers are exact to a granularity only. Pure.

A clock is asked at ``asked_ms`` and answers by ``answered_ms``, both by this machine's clock. It showed
``told_ms`` to ``told_ms + granularity_ms`` at some moment between; so its lead is within known bounds, and
only a lead outside these is reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.doctor.finding import Finding, Verdict

DATE_MS = 1_000
"""The granularity of an HTTP header Date."""
_WARNING_MS, _FAULT_MS = 500, 5_000
_DO = "synchronise the clocks of both machines (chronyc tracking): delivery goes by the broker's"


@dataclass(frozen=True)
class Reading:
    """One look at a clock, all in ms since the epoch."""

    asked_ms: int
    answered_ms: int
    told_ms: int
    granularity_ms: int = 1

    @property
    def ahead_ms(self) -> tuple[int, int]:
        """The bounds of its lead over this machine's clock."""
        return self.told_ms - self.answered_ms, self.told_ms + self.granularity_ms - self.asked_ms


def skew_finding(daemon: Reading, broker: Reading) -> Finding:
    """The finding about the broker's clock beside the daemon's."""
    low = broker.ahead_ms[0] - daemon.ahead_ms[1]
    high = broker.ahead_ms[1] - daemon.ahead_ms[0]
    least = max(low, -high, 0)
    exact = f"the look is exact to {broker.granularity_ms / 1_000:g} s"
    if least < _WARNING_MS:
        says = f"broker and daemon show the same time, {least} ms apart at least; {exact}"
        return Finding(check="clocks", verdict=Verdict.OK, says=says)
    way = "ahead of" if low > 0 else "behind"
    says = f"the broker's clock is at least {least / 1_000:.1f} s {way} the daemon's; {exact}"
    verdict = Verdict.FAULT if least >= _FAULT_MS else Verdict.WARNING
    return Finding(check="clocks", verdict=verdict, says=says, do=_DO)
