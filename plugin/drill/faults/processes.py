"""Processes killed, stopped in an orderly way, or made to stand still."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.plugin.drill.fault import FaultError, Scene, State
from tidegate.plugin.drill.ledger import Forgets


@dataclass(frozen=True)
class Kill:
    """Kill -9 of the parts, then their start."""

    parts: tuple[str, ...]
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"kill -9 of {_listed(self.parts)}"

    @property
    def forgets(self) -> Forgets:
        """A dead broker forgets the unstored part of its cursors; without a bookie it can store nothing."""
        broker = any(name.startswith(("broker", "machine", "bookie")) for name in self.parts)
        return Forgets.UNSTORED if broker else Forgets.NOTHING

    def do(self, scene: Scene) -> str:
        """Kill all of them, one right after the other."""
        for name in self.parts:
            scene.part(name).kill()
        return _seen(scene, self.parts, State.GONE)

    def undo(self, scene: Scene) -> None:
        """Start all of them, the daemon first, as a machine that boots may."""
        for name in sorted(self.parts, reverse=True):
            scene.bring_back(name)


@dataclass(frozen=True)
class Restart:
    """The parts are stopped as an operator does it, and started."""

    parts: tuple[str, ...]
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"orderly restart of {_listed(self.parts)}"

    @property
    def forgets(self) -> Forgets:
        """Pulsar stores its cursors then, but only up to the configured number of ranges."""
        broker = any(name.startswith(("broker", "machine")) for name in self.parts)
        return Forgets.ORDERLY if broker else Forgets.NOTHING

    def do(self, scene: Scene) -> str:
        """Stop them."""
        for name in self.parts:
            scene.part(name).stop()
        return _seen(scene, self.parts, State.GONE)

    def undo(self, scene: Scene) -> None:
        """Start them."""
        for name in self.parts:
            scene.bring_back(name)


@dataclass(frozen=True)
class Pause:
    """The part stands still with its connections open, then continues.

    With ``replace_clients`` the clients, which cannot notice, are replaced at once.
    """

    name: str
    replace_clients: bool = False
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"the {self.name} stands still (SIGSTOP)"

    def do(self, scene: Scene) -> str:
        """Pause it."""
        scene.part(self.name).pause()
        seen = _seen(scene, (self.name,), State.PAUSED)
        if self.replace_clients:
            scene.drivers.replace()
        return seen

    def undo(self, scene: Scene) -> None:
        """Resume it."""
        scene.bring_back(self.name)


@dataclass(frozen=True)
class Stutter:
    """The part stands still for ``still_s`` in each ``every_s``, as with a slow disk or a long collection."""

    name: str
    times: int
    still_s: float
    every_s: float
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        share = self.still_s / self.every_s
        return f"the {self.name} stands still for {share:.0%} of the time"

    def do(self, scene: Scene) -> str:
        """Pause and resume it repeatedly."""
        part = scene.part(self.name)
        for _ in range(self.times):
            part.pause()
            _seen(scene, (self.name,), State.PAUSED)
            scene.pause(self.still_s)
            part.resume()
            scene.pause(self.every_s - self.still_s)
        return f"the {self.name} stood still {self.times} times for {self.still_s:g} s"

    def undo(self, scene: Scene) -> None:
        """Resume it."""
        scene.bring_back(self.name)


@dataclass(frozen=True)
class ChangePulsar:
    """The broker is stopped in an orderly way, and another version of Pulsar starts on its data."""

    name: str
    newer: bool
    forgets: Forgets = Forgets.ORDERLY
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"the {self.name} goes {'on to the newer Pulsar' if self.newer else 'back to its own Pulsar'}"

    def do(self, scene: Scene) -> str:
        """Stop it, start the other version, and ask for the version."""
        part, stand = scene.part(self.name), scene.stand
        before = stand.pulsar_version(self.name)
        part.stop()
        _seen(scene, (self.name,), State.GONE)
        stand.choose_pulsar(self.name, newer=self.newer)
        part.start()
        now = stand.pulsar_version(self.name)
        if before is None or now is None or before == now:
            raise FaultError(
                f"the {self.name} was of Pulsar {before} and is of {now}: the fault was not done"
            )
        return f"the {self.name}: Pulsar {now} after {before}"

    def undo(self, scene: Scene) -> None:
        """Start it, if it did not start."""
        scene.bring_back(self.name)


@dataclass(frozen=True)
class DetachAll:
    """All brokers go back to Pulsar's own tracker, one after the other."""

    forgets: Forgets = Forgets.ORDERLY
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return "all brokers go back to Pulsar's own tracker, one by one"

    def do(self, scene: Scene) -> str:
        """Detach them, and ask each for its tracker."""
        return scene.stand.detach_all()

    def undo(self, scene: Scene) -> None:
        """Start those that did not start."""
        for name in ("broker-a", "broker-b"):
            scene.bring_back(name)


@dataclass(frozen=True)
class Attach:
    """A broker is attached, and restarted."""

    name: str
    forgets: Forgets = Forgets.ORDERLY
    rewinds: bool = False

    @property
    def what(self) -> str:
        """In words."""
        return f"the {self.name} is attached"

    def do(self, scene: Scene) -> str:
        """Attach it, and ask it for its tracker."""
        return scene.stand.attach(self.name)

    def undo(self, scene: Scene) -> None:
        """Start it, if it did not start."""
        scene.bring_back(self.name)


def _listed(names: tuple[str, ...]) -> str:
    return " and ".join(f"the {name}" for name in names)


def _seen(scene: Scene, names: tuple[str, ...], wanted: State) -> str:
    for name in names:
        state = scene.part(name).state()
        if state is not wanted:
            raise FaultError(f"the {name} should be {wanted} and is {state}: the fault was not done")
    return f"{_listed(names)}: {wanted}"
