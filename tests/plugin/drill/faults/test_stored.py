"""Faults of what is stored: a disk that fills up, and when something is in a slice at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.untouched_stand import TOPIC, Unkillable, Untouched, scene_of
from tidegate.plugin.drill.fault import FaultError, State
from tidegate.plugin.drill.faults.stored import DiskFillsUp, PreviousFormat, has_spilled
from tidegate.plugin.drill.plan import FAR_MS


class Filling(Untouched):
    """A daemon that notices a full disk, and room, when it is asked for the third time. ``deaf``: it never
    notices room; ``dies``: it ends on a full disk.
    """

    def __init__(self, directory: Path, *, deaf: bool = False, dies: bool = False) -> None:
        super().__init__(directory)
        self._deaf, self._dies = deaf, dies
        self._full = False
        self._asked = 0
        self.fillings = 0

    def part(self, name: str) -> Unkillable:
        return Ended(name) if self._dies else Unkillable(name)

    def fill_disk(self, *, full: bool) -> int:
        if full is not self._full:
            self._asked = 0
        self._full = full
        self.fillings += full
        return 1_000 if full and self.fillings == 1 else 0

    def status(self) -> dict[str, Any] | None:
        self._asked += 1
        noticed = self._asked >= 3 and (self._full or not self._deaf)
        ready = self._full is not noticed
        return {"daemon": {"ready": ready, "not_ready": [] if ready else ["no space left"]}}


class Ended(Unkillable):
    """A process that has ended and starts no more."""

    def state(self) -> State:
        return State.GONE


def test_a_disk_that_fills_up_is_kept_full_until_the_daemon_says_so_and_after(tmp_path: Path) -> None:
    stand = Filling(tmp_path)
    scene = scene_of(stand, tmp_path)
    fault = DiskFillsUp()
    assert fault.do(scene) == "1,000 bytes filled the disk, and the daemon is not ready: no space left"
    assert stand.fillings == 3, "what the daemon has made room for is taken from it as well"
    fault.undo(scene)
    status = stand.status()
    assert status is not None
    assert status["daemon"]["ready"]


def test_a_daemon_that_dies_of_a_full_disk_or_does_not_notice_room_fails(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="has ended"):
        DiskFillsUp().do(scene_of(Filling(tmp_path, dies=True), tmp_path))
    scene = scene_of(Filling(tmp_path, deaf=True), tmp_path)
    DiskFillsUp().do(scene)
    with pytest.raises(FaultError, match="not ready again although there is room: no space left"):
        DiskFillsUp().undo(scene)
    with pytest.raises(FaultError, match="there is room: it does not answer"):
        DiskFillsUp().undo(scene_of(Untouched(tmp_path), tmp_path))


class Slow(Untouched):
    """A daemon that takes two seconds for each status, and has spilled nothing. ``now_s``: its clock."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.now_s = 0.0

    def status(self) -> dict[str, Any] | None:
        self.now_s += 2.0
        return None


def test_a_wait_counts_the_time_that_a_slow_daemon_takes_to_answer(tmp_path: Path) -> None:
    stand = Slow(tmp_path)
    scene = replace(scene_of(stand, tmp_path), monotonic_s=lambda: stand.now_s)
    with pytest.raises(FaultError, match="spilled nothing yet"):
        PreviousFormat().do(scene)
    assert stand.now_s < 70.0


def test_only_slices_of_the_round_count_as_spilled() -> None:
    now_ms = 1_000_000

    def status(topic: str, soon: int, later: int, omitted: int = 0) -> dict[str, Any]:
        starts_ms = [now_ms + 5_000 * one for one in range(soon)]
        starts_ms += [now_ms + FAR_MS + 5_000 * one for one in range(later)]
        slices = [{"start_ms": start_ms, "state": "stored"} for start_ms in starts_ms]
        found = {"topic": topic, "slices": slices, "slices_omitted": omitted}
        return {"daemon": {"now_ms": now_ms}, "subscriptions": [found]}

    assert has_spilled(status(TOPIC, 2, 12), TOPIC)
    assert has_spilled(status(TOPIC, 2, 4, omitted=8), TOPIC)
    assert not has_spilled(status(TOPIC, 1, 12), TOPIC)
    assert not has_spilled(status(TOPIC, 14, 0), TOPIC)
    assert not has_spilled(status(f"{TOPIC}-of-before", 2, 12), TOPIC)
    over = status(TOPIC, 2, 12)
    over["subscriptions"][0]["slices"][0]["state"] = "finished"
    assert not has_spilled(over, TOPIC)
    assert not has_spilled(None, TOPIC)
