"""The pace of release told by a stream's broker, and until when that excuses late messages."""

from __future__ import annotations

import math

from tidegate.plugin.wire.release_pace import ReleasePace


class ToldPace:
    """The pace in force at a broker, by its last report.

    excused_until_ms: entries that were due by then may be late: the pace held them.
    """

    __slots__ = ("excused_until_ms", "pace")

    def __init__(self) -> None:
        self.pace = ReleasePace()
        self.excused_until_ms: float = -math.inf

    def tell(self, pace: ReleasePace, now_ms: int) -> None:
        """Note that this pace is in force."""
        if pace.is_on:
            self.excused_until_ms = math.inf
        elif self.pace.is_on:
            self.excused_until_ms = now_ms
        self.pace = pace
