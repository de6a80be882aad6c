"""The slice width of one subscription: its value, its origin, and the memory for the next choice.

`width` chooses. Invariant: a persist's choice does not overrule a width set while the persist is on its way.
"""

from __future__ import annotations

import logging

from tidegate.index.blocks.width import WidthDecision, WidthLook, WidthMemory
from tidegate.index.names import SubscriptionName

_LOG = logging.getLogger(__name__)


class SliceWidth:
    """Width, in ms, of the slices for entries spilled from now on.

    auto: True if each persist chooses it anew.
    memory: the memory of the last choice.
    """

    def __init__(self, width_ms: int, auto: bool, *, chosen: bool = False) -> None:
        self.width_ms = width_ms
        self.auto = auto
        self.memory = WidthMemory(chosen=chosen)
        self._look: WidthLook | None = None
        self._was_set = False
        self._spilled_ns: int | None = None

    def set(self, width_ms: int, auto: bool) -> None:
        """Set the width to use, or to begin with."""
        self.width_ms, self.auto = width_ms, auto
        self.memory, self._look = WidthMemory(), None
        self._was_set = True

    def begin_choice(self, now_ns: int) -> int | None:
        """Note that a persist begins; returns milliseconds since the last one did, None for the first."""
        before_ns, self._spilled_ns = self._spilled_ns, now_ns
        self._was_set = False
        return None if before_ns is None else (now_ns - before_ns) // 1_000_000

    def apply_decision(self, decision: WidthDecision | None, name: SubscriptionName) -> None:
        """Apply the decision of a persist, unless a width was set meanwhile."""
        if decision is None or self._was_set:
            return
        if decision.width_ms != self.width_ms:
            why = "" if decision.look is None else f": {decision.look.reason()}"
            _LOG.info("%s: slice width %d ms, was %d ms%s", name, decision.width_ms, self.width_ms, why)
        self.width_ms, self.memory = decision.width_ms, decision.memory
        self._look = decision.look or self._look

    def reason(self) -> str:
        """The reason for the width, for people."""
        if not self.auto:
            return "fixed"
        return "no spill has been looked at since the start" if self._look is None else self._look.reason()
