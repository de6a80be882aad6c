"""What a drill can do to a stand, and what a stand must offer for it.

A fault is done, checked, held, and undone. Invariants: what cannot be done, or is not seen to be done, raises
``FaultError``, and the drill fails with its words; ``undo`` works whatever ``do`` got to, so that a stand
can be used again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.errors import UserError


class FaultError(UserError):
    """A fault could not be done, or was not seen to be done; the message says which and why."""


class Need(StrEnum):
    """What a drill needs of the place that it is run in."""

    BROKER = "a broker that may be killed"
    DAEMON = "a daemon that may be killed"
    DATA = "the daemon's data directory"
    TWO_BROKERS = "two brokers"
    MACHINES = "machines that may be lost or restarted"
    MOVE = "a topic that can be moved"
    BOOKIE = "a bookie of its own"
    CLOCK = "a C compiler"
    DISK = "root, to mount a small disk"
    ADMIN = "the admin URL"
    PREVIOUS = "a data directory that may be rewritten"


class State(StrEnum):
    """How a process is."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class Part(Protocol):
    """A process of the stand. Every call returns when it has happened, and raises ``UserError`` if it has
    not.
    """

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        ...

    def kill(self) -> None:
        """Kill -9."""
        ...

    def stop(self) -> None:
        """End it in an orderly way."""
        ...

    def start(self) -> None:
        """Start it again and wait until it can be used."""
        ...

    def pause(self) -> None:
        """It stands still, its connections stay open."""
        ...

    def resume(self) -> None:
        """It goes on."""
        ...

    def state(self) -> State:
        """How it is now."""
        ...


class Drivers(Protocol):
    """The producer and consumers of the round, as far as a fault has to do with them."""

    @property
    def consumers(self) -> int:
        """How many consumers are subscribed."""
        ...

    def replace(self) -> None:
        """Give up the client, which may not notice by itself that its broker is gone, and take a new one."""
        ...

    def replace_consumer(self) -> None:
        """Close the consumer that has been there for longest, and subscribe another one."""
        ...

    def receiving(self, *, on: bool) -> None:
        """Whether the consumers take messages from their queues."""
        ...

    @property
    def received(self) -> int:
        """How many receipts there are."""
        ...


class Stand(Protocol):
    """A place to drill in: brokers and daemons, or what can be reached of somebody's own."""

    @property
    def name(self) -> str:
        """What the reports call it."""
        ...

    @property
    def tracker(self) -> str:
        """Whose tracker the broker runs, by the names of ``--compare``."""
        ...

    @property
    def token(self) -> str | None:
        """What its clients authenticate with."""
        ...

    @property
    def offers(self) -> frozenset[Need]:
        """The needs that it meets."""
        ...

    @property
    def lacking(self) -> dict[Need, str]:
        """Why it does not meet others, where there is more to say."""
        ...

    def client_url(self, topic: str) -> str:
        """What a client connects to now. Raises ``UserError`` while nobody who answers has the topic."""
        ...

    def part(self, name: str) -> Part:
        """``broker``, ``daemon``, ``bookie``; of several the one that has the topic, or ``broker-a``."""
        ...

    def move(self, topic: str) -> str:
        """Have another broker own the topic; returns what was seen of it."""
        ...

    def rewind(self, topic: str, subscription: str) -> None:
        """Set the subscription's cursor back to the beginning of the topic."""
        ...

    def data_dir(self) -> Path:
        """The data directory of that daemon."""
        ...

    def status(self) -> dict[str, Any] | None:
        """What that daemon says of itself; None if it does not answer."""
        ...

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the clock of ``broker`` or ``daemon``."""
        ...

    def clock_ahead_s(self, name: str) -> float | None:
        """How far the process says that its clock is ahead, to about a second; None if it does not answer."""
        ...

    def fill_disk(self, *, full: bool) -> int:
        """Fill the daemon's disk, or make room again; returns the bytes that it took."""
        ...

    def topic(self, drill: str, number: int) -> str:
        """A topic for one round, made if it must be; full name."""
        ...

    def wait_usable(self, topic: str) -> None:
        """Return when messages of the topic can be delivered."""
        ...

    def delayed(self, topic: str, subscription: str) -> int | None:
        """How many messages of the subscription wait to be due; None if it cannot be told."""
        ...

    def release(self, topic: str, subscription: str) -> None:
        """The round is over: leave nothing behind that would be in somebody's way."""
        ...

    def entries_read(self, topic: str) -> dict[str, int] | None:
        """Entries of the topic that each running broker has read from storage since its start; None if
        unknown.
        """
        ...


@dataclass(frozen=True)
class Scene:
    """Where and when a fault happens. ``event`` writes into the ledger; ``pause`` waits and may raise."""

    stand: Stand
    topic: str
    subscription: str
    drivers: Drivers
    pause: Callable[[float], None]
    event: Callable[..., int]
    work_dir: Path
    parts: dict[str, Part] = field(default_factory=dict)

    def part(self, name: str) -> Part:
        """The part of that name; during one fault the same one, whoever has the topic by then."""
        if name not in self.parts:
            self.parts[name] = self.stand.part(name)
        return self.parts[name]

    def bring_back(self, name: str) -> None:
        """Start the part of that name if it is gone, let it go on if it is paused, and wait until it runs."""
        part = self.part(name)
        state = part.state()
        if state is State.GONE:
            part.start()
        elif state is State.PAUSED:
            part.resume()


class Fault(Protocol):
    """One kind of fault; its fields say what to, so that a drill is data."""

    @property
    def what(self) -> str:
        """It in a few words, for ledger, view and report."""
        ...

    @property
    def forgets(self) -> Forgets:
        """Which acknowledgements may be forgotten over it."""
        ...

    @property
    def rewinds(self) -> bool:
        """Whether it sets the cursor back on purpose."""
        ...

    def do(self, scene: Scene) -> str:
        """Do it and see that it is done; returns how that was seen."""
        ...

    def undo(self, scene: Scene) -> None:
        """Take it back, and return when everything runs again."""
        ...
