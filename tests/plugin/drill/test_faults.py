"""A fault that was not done fails, whichever drill it is of: on a stand to which nothing can be done."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tidegate.plugin.drill.catalogue import DRILLS
from tidegate.plugin.drill.fault import Fault, FaultError, Need, Scene, State
from tidegate.plugin.drill.faults.moves import SeekWhileMoving
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


def test_each_drill_but_the_burst_has_a_fault() -> None:
    """Its fault is the load, and the verdict sees whether that was done."""
    assert [drill.name for drill in DRILLS if not drill.faults] == ["burst"]
