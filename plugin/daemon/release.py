"""What a stream's broker says about the pace of release, and since when that excuses late messages."""

from __future__ import annotations

import math

from tidegate.plugin.wire.messages import ReleasePace


class Release:
    """The pace in force at a broker, as it was told last.

    excused_until_ms: entries that were due by then may be late, because something held them back.
    """

    __slots__ = ("excused_until_ms", "pace")

    def __init__(self) -> None:
        self.pace = ReleasePace()
        self.excused_until_ms: float = -math.inf

    def tell(self, pace: ReleasePace, now_ms: int) -> None:
        """The broker says that this pace is in force."""
        if pace.is_on:
            self.excused_until_ms = math.inf
        elif self.pace.is_on:
            self.excused_until_ms = now_ms
        self.pace = pace
