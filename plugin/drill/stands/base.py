"""The session's requirements of a stand, beside those of faults."""

from __future__ import annotations

from typing import Protocol

from tidegate.plugin.drill.fault import Stand


class RunningStand(Stand, Protocol):
    """A stand with a beginning and an end."""

    def start(self) -> None:
        """Start its processes."""
        ...

    def end(self) -> None:
        """End its processes."""
        ...
