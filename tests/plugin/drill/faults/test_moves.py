"""Faults that move a topic."""

from __future__ import annotations

from pathlib import Path

from tests.support.untouched_stand import Untouched, scene_of
from tidegate.plugin.drill.fault import FaultError
from tidegate.plugin.drill.faults.moves import SeekWhileMoving


class Reluctant(Untouched):
    """Moves, and takes a reset only when it is asked a third time."""

    def __init__(self, directory: Path, seen: list[str]) -> None:
        super().__init__(directory)
        self._seen = seen

    def move(self, topic: str) -> str:
        return "moved"

    def rewind(self, topic: str, subscription: str) -> None:
        self._seen.append("asked")
        if self._seen.count("asked") < 3:
            raise FaultError("the topic is being unloaded")


def test_each_attempt_to_set_the_cursor_back_is_told_before_it_is_made(tmp_path: Path) -> None:
    """The verdict counts from the last one, which a broker took."""
    seen: list[str] = []
    SeekWhileMoving().do(scene_of(Reluctant(tmp_path, seen), tmp_path, seen))
    assert seen == ["rewinding", "asked"] * 3
