"""Faults of what the daemon has stored: its directory lost, or bytes of it changed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tidegate.plugin.drill.fault import FaultError, Scene, State


@dataclass(frozen=True)
class LoseData:
    """The daemon dies with its data directory, and starts with an empty one."""

    what: str = "the daemon's data directory is lost"
    forgets: bool = False
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Kill it, and delete what it had."""
        directory = scene.stand.data_dir()
        if not any(directory.rglob("*.sst")) and not any(directory.rglob("*.log")):
            raise FaultError(f"there is no index in {directory} that could be lost: the fault was not done")
        scene.stand.part("daemon").kill()
        files = sum(path.is_file() for path in directory.rglob("*"))
        shutil.rmtree(directory)
        if directory.exists():
            raise FaultError(f"{directory} is still there: the fault was not done")
        return f"{files} files are gone"

    def undo(self, scene: Scene) -> None:
        """Start it anew."""
        part = scene.stand.part("daemon")
        if part.state() is State.GONE:
            part.start()


def tables(directory: Path) -> list[Path]:
    """The table files of the index, the largest first."""
    return sorted(directory.rglob("*.sst"), key=lambda path: path.stat().st_size, reverse=True)
