"""The faults of a topic's owner, in their order. Each returns its undoing.

A rolling restart restarts the owner's machine and then the other one, which has the topic by then.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.takeover.place import TOPIC, Place
from bench.takeover.traffic import Traffic

PAUSED_S = 12.0


@dataclass(frozen=True)
class Fault:
    """A fault of the topic's owner. ``do`` returns the work to do after the measurement."""

    title: str
    do: Callable[[Place, Traffic], Callable[[], None]]
    moves: bool = True
    is_planned: bool = False
    """The client rests before it, as one that is drained: nothing that was acknowledged may come again."""
    times: int = 1
    """How often in a row: each time to whoever has the topic then."""
    needs_daemon: bool = False


def _nothing() -> None:
    """Nothing is left to do."""


def unload(place: Place, _: Traffic) -> Callable[[], None]:
    """The topic's bundle moves to the other broker."""
    place.stand.move(TOPIC)
    return _nothing


def restart(place: Place, _: Traffic) -> Callable[[], None]:
    """The owner's broker and daemon are stopped in an orderly way, and started again."""
    machine = place.stand.part("machine")
    machine.stop()
    return machine.start


def kill(place: Place, traffic: Traffic) -> Callable[[], None]:
    """Kill -9 of the owner's broker and daemon."""
    machine = place.stand.part("machine")
    machine.kill()
    traffic.replace(place.service_url)
    return machine.start


def stand_still(place: Place, traffic: Traffic) -> Callable[[], None]:
    """The owner's broker and daemon stand still until another one has the topic, then continue."""
    machine = place.stand.part("machine")
    machine.pause()
    traffic.replace(place.live_url)
    resumed_s = time.monotonic() + PAUSED_S

    def go_on() -> None:
        time.sleep(max(0.0, resumed_s - time.monotonic()))  # another owner must have the topic by then
        machine.resume()
        time.sleep(PAUSED_S)  # the arrivals show any further work of the former owner
        # It may believe for minutes that the topic is its own: a fresh one for the next fault.
        machine.kill()
        machine.start()

    return go_on


def lose_disk(place: Place, _: Traffic) -> Callable[[], None]:
    """The daemon dies, and its data with it; an empty one is started. The broker stays."""
    daemon, folder = place.stand.part("daemon"), place.stand.data_dir()
    daemon.kill()
    shutil.rmtree(folder)
    daemon.start()
    return _nothing


KILL = Fault("broker and daemon killed", kill)
FAULTS = (
    Fault("unload", unload, is_planned=True),
    KILL,
    Fault("rolling restart", restart, is_planned=True, times=2),
    Fault("broker and daemon paused past the session's end", stand_still),
    Fault("the daemon's disk lost, from the start of another", lose_disk, moves=False, needs_daemon=True),
)
