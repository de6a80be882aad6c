"""Faults that a drill can do to a stand, and the interface that a stand offers for them.

A fault is done, checked, held, and undone. Invariants: a fault that cannot be done, or is not seen done,
raises ``FaultError``, and the drill fails with its words; ``undo`` works wherever ``do`` stopped, so that a
stand can be used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.errors import UserError

_POLL_S = 0.1
FoundT = TypeVar("FoundT")


class FaultError(UserError):
    """A fault that could not be done, or was not seen done; the message says which and why."""


class Need(StrEnum):
    """A drill's requirement of its stand."""

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
    NEWER = "a newer Pulsar beside its own"
    ATTACHED = "brokers that tidegate attach has attached"


class State(StrEnum):
    """The state of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class Part(Protocol):
    """A process of the stand. Each call returns once it has taken effect, else raises ``UserError``."""

    @property
    def name(self) -> str:
        """Its name in sentences."""
        ...

    def kill(self) -> None:
        """Kill -9."""
        ...

    def stop(self) -> None:
        """End it orderly."""
        ...

    def start(self) -> None:
        """Start it again and wait until it is usable."""
        ...

    def pause(self) -> None:
        """Make it stand still, its connections open."""
        ...

    def resume(self) -> None:
        """Let it continue."""
        ...

    def state(self) -> State:
        """Its present state."""
        ...


class Drivers(Protocol):
    """The round's producer and consumers, for faults."""

    @property
    def consumers(self) -> int:
        """Number of subscribed consumers."""
        ...

    def replace(self) -> None:
        """Replace the client, which may not notice that its broker is gone."""
        ...

    def replace_consumer(self) -> None:
        """Close the oldest consumer and subscribe another one."""
        ...

    def receiving(self, *, on: bool) -> None:
        """Let the consumers take messages from their queues, or stop them."""
        ...

    def working(self, each_s: float) -> None:
        """Have each consumer spend ``each_s`` on a message before the next one."""
        ...

    @property
    def received(self) -> int:
        """Number of receipts."""
        ...


class Stand(Protocol):
    """A place to drill in: brokers and daemons, or the accessible parts of a user's own cluster."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        ...

    @property
    def tracker(self) -> str:
        """The broker's tracker, by the names of ``--compare``."""
        ...

    @property
    def token(self) -> str | None:
        """Its clients' token."""
        ...

    @property
    def offers(self) -> frozenset[Need]:
        """The needs that it meets."""
        ...

    @property
    def lacking(self) -> dict[Need, str]:
        """Known reasons why it does not meet others."""
        ...

    def client_url(self, topic: str) -> str:
        """The URL for a client now. Raises ``UserError`` while no broker that answers has the topic."""
        ...

    def part(self, name: str) -> Part:
        """``broker``, ``daemon``, ``bookie``; of several the topic's owner, or a named one, ``broker-a``."""
        ...

    def move(self, topic: str) -> str:
        """Make another broker own the topic; returns the evidence."""
        ...

    def rewind(self, topic: str, subscription: str) -> None:
        """Set the subscription's cursor back to the topic's beginning."""
        ...

    def data_dir(self) -> Path:
        """That daemon's data directory."""
        ...

    def status(self) -> dict[str, Any] | None:
        """That daemon's status; None if it does not answer."""
        ...

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the clock of ``broker`` or ``daemon``."""
        ...

    def clock_ahead_s(self, name: str) -> float | None:
        """The lead of the process's clock by its own account, to about a second; None without an answer."""
        ...

    def fill_disk(self, *, full: bool) -> int:
        """Fill the daemon's disk, or make room again; returns the bytes written."""
        ...

    def choose_pulsar(self, name: str, *, newer: bool) -> None:
        """Have the stopped broker ``name`` start from the newer Pulsar's home, or from its own again."""
        ...

    def pulsar_version(self, name: str) -> str | None:
        """The version stated by the running broker ``name``; None without an answer."""
        ...

    def detach_all(self) -> str:
        """Take all brokers back to Pulsar's own tracker, as the command does; returns the evidence."""
        ...

    def attach(self, name: str) -> str:
        """Attach the broker ``name``, and restart it; returns the evidence."""
        ...

    def topic(self, drill: str, number: int) -> str:
        """The full name of a round's topic, made if missing."""
        ...

    def wait_usable(self, topic: str) -> None:
        """Return when the topic's messages can be delivered."""
        ...

    def delayed(self, topic: str, subscription: str) -> int | None:
        """How many of the subscription's messages wait to be due; None if unknown."""
        ...

    def release(self, topic: str, subscription: str) -> None:
        """End the round: leave no load on the user's cluster."""
        ...

    def entries_read(self, topic: str) -> dict[str, int] | None:
        """The topic's entries read from storage so far, by running broker; None if unknown."""
        ...


@dataclass(frozen=True)
class Scene:
    """Place and time of a fault. ``event`` writes into the ledger; ``pause`` waits and may raise.

    ``monotonic_s``: the clock of its time-outs.
    """

    stand: Stand
    topic: str
    subscription: str
    drivers: Drivers
    pause: Callable[[float], None]
    event: Callable[..., int]
    work_dir: Path
    monotonic_s: Callable[[], float] = time.monotonic
    parts: dict[str, Part] = field(default_factory=dict)

    def part(self, name: str) -> Part:
        """The part of that name, the same throughout a fault, even if the topic changes its owner."""
        if name not in self.parts:
            self.parts[name] = self.stand.part(name)
        return self.parts[name]

    def poll(self, look: Callable[[], FoundT], timeout_s: float) -> FoundT:
        """The first true result of ``look``, or the last one when the time is up."""
        deadline_s = self.monotonic_s() + timeout_s
        while not (found := look()) and self.monotonic_s() <= deadline_s:
            self.pause(_POLL_S)
        return found

    def bring_back(self, name: str) -> None:
        """Start the named part if it is gone, resume it if it is paused, and wait until it runs."""
        part = self.part(name)
        state = part.state()
        if state is State.GONE:
            part.start()
        elif state is State.PAUSED:
            part.resume()


class Fault(Protocol):
    """One kind of fault; its fields are its parameters, so that a drill is data."""

    @property
    def what(self) -> str:
        """The fault in a few words, for ledger, view and report."""
        ...

    @property
    def forgets(self) -> Forgets:
        """The acknowledgements that it may make forgotten."""
        ...

    @property
    def rewinds(self) -> bool:
        """True if it sets the cursor back on purpose."""
        ...

    def do(self, scene: Scene) -> str:
        """Do it and check that it is done; returns the evidence."""
        ...

    def undo(self, scene: Scene) -> None:
        """Undo it, and return when everything runs again."""
        ...
