"""What the session asks of a stand beside what faults do."""

from __future__ import annotations

from typing import Protocol

from tidegate.plugin.drill.fault import Stand


class RunningStand(Stand, Protocol):
    """A stand with a beginning and an end."""

    def start(self) -> None:
        """Start what belongs to it."""
        ...

    def end(self) -> None:
        """End what was started."""
        ...
