"""An index counts what it has: cheap invariants, without a block read, for each step of a history."""

from __future__ import annotations

from tests.sim.kernel import Violation
from tidegate.index.state.positions import PositionSet
from tidegate.index.subscription.delay_index import DelayIndex


def check_counts(index: DelayIndex) -> None:
    """Raise Violation, or CheckError, if an index counts wrongly."""
    index.state.check()
    timeline = index.timeline
    timeline._exhausted.check(index.state.held)
    stagings = [each for each in (timeline._staging, timeline._frozen) if each is not None]
    staged = sum(len(part) for each in stagings for part in each.parts())
    if timeline.staged_or_frozen != staged:
        raise Violation(f"{index.name} counts {timeline.staged_or_frozen} staged entries, and has {staged}")
    for positions in (index.state.held, index.state.acknowledged, index.state.in_flight):
        check_shared(positions)


def check_shared(positions: PositionSet) -> None:
    """A set has all pages that it shares with its snapshots: else it copies its own ones in vain."""
    gone = positions._shared - positions._pages.keys()
    if gone:
        raise Violation(f"a set of positions shares pages that it does not have: {sorted(gone)}")
