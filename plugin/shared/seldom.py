"""Limits events that may happen ten thousand times a second to one log line a minute.

Invariants: the first event of a kind is always logged, those in the next ``every_s`` seconds are counted;
memory is bounded, however many kinds there are.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass

EVERY_S = 60.0
KINDS_MAX = 256


@dataclass
class _Kind:
    told_at_ns: int
    untold: int = 0


class Seldom:
    """Decides whether to log one more event of a kind."""

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns, every_s: float = EVERY_S) -> None:
        self._monotonic_ns = monotonic_ns
        self._every_ns = int(every_s * 1e9)
        self._kinds: dict[Hashable, _Kind] = {}

    def more(self, kind: Hashable) -> dict[str, int] | None:
        """Fields for this event's log line: ``untold``, the number of unlogged events since the last line.

        Empty without any; None: do not log this event either.
        """
        now_ns = self._monotonic_ns()
        known = self._kinds.pop(kind, None)
        if known is not None and now_ns - known.told_at_ns < self._every_ns:
            known.untold += 1
            self._kinds[kind] = known
            return None
        if len(self._kinds) >= KINDS_MAX:
            del self._kinds[next(iter(self._kinds))]  # the kind not met for longest
        self._kinds[kind] = _Kind(now_ns)
        return {"untold": known.untold} if known is not None and known.untold else {}


def kind_of(error: BaseException | None) -> Hashable:
    """The key by which a log reader calls two exceptions the same: their type, and the raising line."""
    if error is None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    where = (frames[-1].filename, frames[-1].lineno) if frames else None
    return type(error), where
