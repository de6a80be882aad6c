"""A fault that was not done fails, whichever drill it is of: on a stand to which nothing can be done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tidegate.plugin.drill.catalogue import DRILLS
from tidegate.plugin.drill.fault import Fault, FaultError, Need, Scene, State
from tidegate.plugin.drill.faults.moves import SeekWhileMoving
from tidegate.plugin.drill.faults.stored import DiskFillsUp
from tidegate.plugin.drill.stands.own import Own, OwnStand

TOPIC = "persistent://public/default/test"
FAULTS = [
    pytest.param(fault, id=f"{drill.name}-{number}")
    for drill in DRILLS
    for number, fault in enumerate(drill.faults)
]


class Unkillable:
    """A process that runs on, whatever is done to it, and says nothing of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _nothing(self) -> None:
        """Return as if it had happened."""

    kill = stop = start = pause = resume = _nothing

    def state(self) -> State:
        return State.RUNNING


class Untouched(OwnStand):
    """Takes every request, and stays as it is."""

    def __init__(self, directory: Path) -> None:
        super().__init__(Own("pulsar://127.0.0.1:1", None, TOPIC, None), directory, pause=time.sleep)
        self._directory = directory

    @property
    def offers(self) -> frozenset[Need]:
        return frozenset(Need)

    def part(self, name: str) -> Unkillable:
        return Unkillable(name)

    def move(self, topic: str) -> str:
        raise FaultError(f"{topic} did not move")

    def rewind(self, topic: str, subscription: str) -> None:
        pass

    def data_dir(self) -> Path:
        return self._directory

    def set_clock(self, name: str, ahead_s: float) -> None:
        pass

    def clock_ahead_s(self, name: str) -> float | None:
        return 0.0

    def fill_disk(self, *, full: bool) -> int:
        return 0


class Restless:
    """Consumers that cannot be replaced, and go on receiving."""

    consumers = 2

    def __init__(self) -> None:
        self._received = 0

    def replace(self) -> None:
        pass

    def replace_consumer(self) -> None:
        raise FaultError("there is no connected consumer to replace")

    def receiving(self, *, on: bool) -> None:
        pass

    @property
    def received(self) -> int:
        self._received += 1
        return self._received


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


def scene_of(stand: Untouched, directory: Path, events: list[str] | None = None) -> Scene:
    """A scene on the stand; the kinds of its events go to ``events``."""

    def event(kind: str, **fields: object) -> int:
        if events is not None:
            events.append(kind)
        return 0

    return Scene(
        stand=stand,
        topic=TOPIC,
        subscription="drill",
        drivers=Restless(),
        pause=lambda seconds: None,
        event=event,
        work_dir=directory,
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_was_not_done_fails(tmp_path: Path, fault: Fault) -> None:
    (tmp_path / "000001.log").touch()
    with pytest.raises(FaultError):
        fault.do(scene_of(Untouched(tmp_path), tmp_path))


def test_each_attempt_to_set_the_cursor_back_is_told_before_it_is_made(tmp_path: Path) -> None:
    """The verdict counts from the last one, which a broker took."""
    seen: list[str] = []
    SeekWhileMoving().do(scene_of(Reluctant(tmp_path, seen), tmp_path, seen))
    assert seen == ["rewinding", "asked"] * 3


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


def test_each_drill_but_the_burst_has_a_fault() -> None:
    """Its fault is the load, and the verdict sees whether that was done."""
    assert [drill.name for drill in DRILLS if not drill.faults] == ["burst"]
