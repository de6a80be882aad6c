"""Consumers that are hard on a tracker: they come and go, or take nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.drill.fault import FaultError, Scene
from tidegate.plugin.drill.ledger import Forgets


@dataclass(frozen=True)
class Churn:
    """A consumer is closed and another one subscribed."""

    what: str = "a consumer goes and another one comes"
    forgets: Forgets = Forgets.UNDER_WAY
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Replace the oldest consumer."""
        scene.drivers.replace_consumer()
        return "a consumer was closed and another one subscribed"

    def undo(self, scene: Scene) -> None:
        """The new one stays."""


@dataclass(frozen=True)
class SlowConsumers:
    """The consumers take nothing from their queues for a second and ``wait_s``."""

    wait_s: float = 5.0
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return "the consumers take nothing"

    def do(self, scene: Scene) -> str:
        """Stop taking, and see that no more receipts come although messages are due."""
        scene.drivers.receiving(on=False)
        scene.pause(1.0)
        before = scene.drivers.received
        scene.pause(self.wait_s)
        after = scene.drivers.received
        if after != before:
            raise FaultError(f"{after - before} messages were taken all the same: the fault was not done")
        return f"nothing was taken for {self.wait_s:.0f} s"

    def undo(self, scene: Scene) -> None:
        """Resume taking."""
        scene.drivers.receiving(on=True)
