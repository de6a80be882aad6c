"""Consumers that are hard on a tracker: they come and go, or take nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.drill.fault import FaultError, Scene
from tidegate.plugin.drill.ledger import Forgets

_LONGER = 1.5


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
        """Nothing: the new one stays."""


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
        """Stop taking, and check that no receipts come although messages are due."""
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


@dataclass(frozen=True)
class BusyConsumers:
    """Each consumer works ``each_s`` on a message, for ``for_s``: fewer are taken than come due."""

    each_s: float
    for_s: float
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"the consumers work {self.each_s * 1000:.0f} ms on each message"

    def do(self, scene: Scene) -> str:
        """Slow them down, and check that they take some, and no more than they can."""
        drivers = scene.drivers
        drivers.working(self.each_s)
        before = drivers.received
        scene.pause(self.for_s)
        taken = drivers.received - before
        # A busy machine pauses for longer.
        most = round(_LONGER * drivers.consumers * self.for_s / self.each_s)
        if not 0 < taken <= most:
            raise FaultError(f"{taken:,} messages were taken, not 1 to {most:,}: the fault was not done")
        return f"{taken:,} were taken within {self.for_s:.0f} s"

    def undo(self, scene: Scene) -> None:
        """Let them take the rest."""
        scene.drivers.working(0.0)
