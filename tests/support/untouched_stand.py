"""A stand of drills to which nothing can be done: requests are taken, and nothing happens."""

from __future__ import annotations

import time
from pathlib import Path

from tidegate.plugin.drill.fault import FaultError, Need, Scene, State
from tidegate.plugin.drill.stands.own import Own, OwnStand

TOPIC = "persistent://public/default/test"


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

    def detach_all(self) -> str:
        raise FaultError("not every broker ran Tidegate's tracker")

    def attach(self, name: str) -> str:
        raise FaultError(f"{name} runs another tracker")

    def choose_pulsar(self, name: str, *, newer: bool) -> None:
        pass

    def pulsar_version(self, name: str) -> str | None:
        return "4.0.8"

    def fill_disk(self, *, full: bool) -> int:
        return 0


class Restless:
    """Consumers that cannot be replaced, and go on receiving at full speed."""

    consumers = 2

    def __init__(self) -> None:
        self._received = 0

    def replace(self) -> None:
        pass

    def replace_consumer(self) -> None:
        raise FaultError("there is no connected consumer to replace")

    def receiving(self, *, on: bool) -> None:
        pass

    def working(self, each_s: float) -> None:
        pass

    @property
    def received(self) -> int:
        self._received += 100_000
        return self._received


def scene_of(stand: Untouched, directory: Path, events: list[str] | None = None) -> Scene:
    """A scene on the stand, with a clock that only pauses move; the kinds of its events go to ``events``."""
    paused_s = 0.0

    def pause(seconds: float) -> None:
        nonlocal paused_s
        paused_s += seconds

    def event(kind: str, **fields: object) -> int:
        if events is not None:
            events.append(kind)
        return 0

    return Scene(
        stand=stand,
        topic=TOPIC,
        subscription="drill",
        drivers=Restless(),
        pause=pause,
        monotonic_s=lambda: paused_s,
        event=event,
        work_dir=directory,
    )
