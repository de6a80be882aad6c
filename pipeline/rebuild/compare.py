"""The positions of an index compared with those of its topic.

Pure. A missing position costs a read, an extra one a look at the cursor; neither loses or repeats a message,
but both are defects.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index import PositionSet
from tidegate.pipeline.topic.ranges import Position


class Difference(NamedTuple):
    """missing: absent from the index, wrongly. extra: held, but no delayed message of the topic.

    acknowledged_but_held: held, though acknowledged in the cursor.
    """

    missing: PositionSet
    extra: PositionSet
    acknowledged_but_held: PositionSet

    @property
    def matched(self) -> bool:
        """True if there is no difference."""
        return not self.missing and not self.extra and not self.acknowledged_but_held


def compare(
    stored: PositionSet,
    held: PositionSet,
    *,
    known_acknowledged: PositionSet,
    before: PositionSet,
    after: PositionSet,
    end: Position,
) -> Difference:
    """Compare the topic's delayed positions up to ``end`` with those held or acknowledged in the index.

    before, after: the cursor's acknowledgements before and after the question to the index. Positions
    acknowledged in between may be held or not.
    """
    held_there = up_to(held, end)
    missing = stored.difference(held).difference(known_acknowledged).difference(after)
    extra = held_there.difference(stored).difference(after)
    return Difference(missing, extra, held_there.intersection(before))


def up_to(positions: PositionSet, end: Position) -> PositionSet:
    """The positions not after ``end``."""
    later = positions.snapshot()
    later.discard_up_to(*end)
    return positions.difference(later)
