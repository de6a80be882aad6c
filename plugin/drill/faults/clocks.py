"""Wrong clocks: the broker's or the daemon's, each by itself."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.drill.fault import FaultError, Scene
from tidegate.plugin.drill.ledger import Forgets

_SEEN_TIMEOUT_S = 60.0
_NEAR_S = 1.9


@dataclass(frozen=True)
class StepClock:
    """The clock of a part, ``ahead_s`` seconds ahead of this machine's (negative: behind), and back."""

    name: str
    ahead_s: float
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        direction = "ahead" if self.ahead_s > 0 else "behind"
        return f"the clock of the {self.name} is set {abs(self.ahead_s):g} s {direction}"

    def do(self, scene: Scene) -> str:
        """Step it."""
        self._set(scene, self.ahead_s, forward=self.ahead_s > 0)
        seen = scene.poll(lambda: _near(scene.stand.clock_ahead_s(self.name), self.ahead_s), _SEEN_TIMEOUT_S)
        if seen is None:
            raise FaultError(f"the {self.name} does not show the other time: the fault was not done")
        return f"the {self.name} shows a time {seen[0]:+.1f} s from this machine's"

    def undo(self, scene: Scene) -> None:
        """Step it back."""
        self._set(scene, 0.0, forward=self.ahead_s < 0)

    def _set(self, scene: Scene, ahead_s: float, *, forward: bool) -> None:
        # The broker's clock alone decides what is early, and the verdict reads it from the ledger. The event
        # comes before a step forward and after one back: in doubt at that instant, a message is not early.
        if forward:
            self._note(scene, ahead_s)
        scene.stand.set_clock(self.name, ahead_s)
        if not forward:
            self._note(scene, ahead_s)

    def _note(self, scene: Scene, ahead_s: float) -> None:
        if self.name == "broker":
            scene.event("clock", ahead_us=round(ahead_s * 1e6))


def _near(seen_s: float | None, wanted_s: float) -> tuple[float] | None:
    """The lead if it is near the wanted one; in a tuple, as none is a lead, too."""
    return (seen_s,) if seen_s is not None and abs(seen_s - wanted_s) < _NEAR_S else None
