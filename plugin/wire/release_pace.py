"""The pace at which due entries leave, as PACE and PACED carry it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

RATE_MAX = 1_000_000
SPREAD_MS_MIN = 1_000
SPREAD_MS_MAX = 7 * 24 * 3_600_000


class PaceKind(IntEnum):
    """The ways in which due entries leave."""

    NONE = 0
    """As they come."""
    PAUSED = 1
    """Not at all."""
    RATE = 2
    """At most so many a second."""
    SPREAD = 3
    """A burst over so many milliseconds."""


PACE_AMOUNTS = {
    PaceKind.NONE: (0, 0),
    PaceKind.PAUSED: (0, 0),
    PaceKind.RATE: (1, RATE_MAX),
    PaceKind.SPREAD: (SPREAD_MS_MIN, SPREAD_MS_MAX),
}


@dataclass(frozen=True, slots=True)
class ReleasePace:
    """The pace at which due entries leave. amount: entries a second, or milliseconds; ``PACE_AMOUNTS``."""

    kind: PaceKind = PaceKind.NONE
    amount: int = 0

    @property
    def is_on(self) -> bool:
        """True if due entries may have to wait."""
        return self.kind != PaceKind.NONE

    @property
    def is_paused(self) -> bool:
        """True if nothing leaves."""
        return self.kind == PaceKind.PAUSED

    @property
    def rate(self) -> int | None:
        """The entries that leave a second at most."""
        return self.amount if self.kind == PaceKind.RATE else None

    @property
    def spread_ms(self) -> int | None:
        """The time over which a burst is spread."""
        return self.amount if self.kind == PaceKind.SPREAD else None

    def as_json(self) -> dict[str, Any]:
        """For answers: `paused`, `rate` and `spread_ms`."""
        return {"paused": self.is_paused, "rate": self.rate, "spread_ms": self.spread_ms}
