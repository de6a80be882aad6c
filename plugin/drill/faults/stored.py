"""Faults of the daemon's stored data: its directory lost, or bytes of it changed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.index import Batch, RocksStore
from tidegate.index.format import FORMAT_VERSION, downgrade, keys
from tidegate.plugin.drill.fault import FaultError, Need, Scene, State
from tidegate.plugin.drill.ledger import Forgets
from tidegate.plugin.drill.plan import FAR_MS
from tidegate.plugin.errors import UserError

_NOTICE_TIMEOUT_S = 60.0
_SPILL_TIMEOUT_S = 60.0
# Messages due soon fill several slices, and those due tomorrow many more.
_SLICES_SOON_MIN, _SLICES_LATER_MIN = 2, 12
_SOON_MS = FAR_MS // 2


@dataclass(frozen=True)
class LoseData:
    """The daemon dies with its data directory, and starts with an empty one."""

    what: str = "the daemon's data directory is lost"
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Kill it, and delete its data."""
        directory = scene.stand.data_dir()
        if not any(directory.rglob("*.sst")) and not any(directory.rglob("*.log")):
            raise FaultError(f"there is no index in {directory} that could be lost: the fault was not done")
        part = scene.part("daemon")
        part.kill()
        if part.state() is not State.GONE:
            raise FaultError(f"the {part.name} should be gone and is {part.state()}: the fault was not done")
        files = sum(path.is_file() for path in directory.rglob("*"))
        shutil.rmtree(directory)
        if directory.exists():
            raise FaultError(f"{directory} is still there: the fault was not done")
        return f"{files} files are gone"

    def undo(self, scene: Scene) -> None:
        """Start it anew."""
        scene.bring_back("daemon")


@dataclass(frozen=True)
class LoseMachine:
    """The owner's broker and daemon die at once, with the daemon's disk."""

    what: str = "the machine of the topic's broker is lost"
    forgets: Forgets = Forgets.UNSTORED
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Kill both, and delete the daemon's data."""
        machine = scene.part("machine")
        directory = scene.stand.data_dir() if Need.DATA in scene.stand.offers else None
        machine.kill()
        if directory is not None:
            shutil.rmtree(directory)
        if machine.state() is not State.GONE or (directory is not None and directory.exists()):
            raise FaultError(f"the {machine.name} should be gone with its disk: the fault was not done")
        return f"the {machine.name} is gone" + (
            "" if directory is None else ", and the daemon's data with it"
        )

    def undo(self, scene: Scene) -> None:
        """An empty machine takes its place."""
        scene.bring_back("machine")


@dataclass(frozen=True)
class DamageBlocks:
    """The daemon is stopped, a byte of each stored block is changed, and the daemon starts again."""

    what: str = "a byte of each stored block is changed"
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Stop it, change its blocks, start it, and check that it notices."""
        part = scene.part("daemon")
        directory = scene.stand.data_dir()
        _wait_for_blocks(scene)
        part.stop()
        count = damage_blocks(directory)
        if not count:
            raise FaultError(f"there is no block in {directory} to be damaged: the fault was not done")
        part.start()
        noticed = scene.poll(lambda: _noticed(scene.stand.status()), _NOTICE_TIMEOUT_S)
        if not noticed:
            raise FaultError("the daemon has not noticed the damage: the fault was not done")
        return f"{count} blocks were damaged, and the daemon has noticed {noticed} so far"

    def undo(self, scene: Scene) -> None:
        """Nothing: the damaged part is read from the topic again."""
        scene.bring_back("daemon")


@dataclass(frozen=True)
class FillDisk:
    """The daemon's disk is full at a restart: the daemon stays away until there is room."""

    what: str = "the daemon's disk is full, and the daemon is started on it"
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Fill it, kill the daemon, and check that it does not start."""
        part = scene.part("daemon")
        written = scene.stand.fill_disk(full=True)
        part.kill()
        try:
            part.start()
        except UserError:
            return f"{written:,} bytes filled the disk, and the daemon did not start on it"
        raise FaultError("the daemon has started although its disk is full: the fault was not done")

    def undo(self, scene: Scene) -> None:
        """Make room, and start it."""
        scene.stand.fill_disk(full=False)
        scene.bring_back("daemon")


@dataclass(frozen=True)
class DiskFillsUp:
    """The running daemon's disk fills up, and then there is room: no process is restarted."""

    what: str = "the daemon's disk fills up while the daemon runs"
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Fill it until the running daemon says that it is not ready."""
        part = scene.part("daemon")
        written = 0

        def fill() -> list[str] | None:
            nonlocal written
            # Repeatedly: the daemon may still delete its own files, and have room for a while.
            written += scene.stand.fill_disk(full=True)
            if part.state() is not State.RUNNING:
                raise FaultError(f"the {part.name} has ended on its full disk: it should run on")
            return _not_ready(scene.stand.status())

        reasons = scene.poll(fill, _NOTICE_TIMEOUT_S)
        if not reasons:
            raise FaultError("the daemon is ready although its disk is full: the fault was not done")
        told = "; ".join(reasons)
        return f"{written:,} bytes filled the disk, and the {part.name} is not ready: {told}"

    def undo(self, scene: Scene) -> None:
        """Make room, and check that the daemon becomes ready."""
        scene.stand.fill_disk(full=False)
        scene.bring_back("daemon")
        last: list[str] = []

        def is_ready() -> bool:
            reasons = _not_ready(scene.stand.status())
            last[:] = ["it does not answer"] if reasons is None else reasons
            return not last

        if not scene.poll(is_ready, _NOTICE_TIMEOUT_S):
            raise FaultError(f"the daemon is not ready again although there is room: {'; '.join(last)}")


@dataclass(frozen=True)
class PreviousFormat:
    """The daemon is stopped, its directory put into the previous format, and started: an upgrade."""

    what: str = "the data directory is of the previous format"
    forgets: Forgets = Forgets.NOTHING
    rewinds: bool = False

    def do(self, scene: Scene) -> str:
        """Stop it, and rewrite its directory."""
        part = scene.part("daemon")
        directory = scene.stand.data_dir()
        _wait_for_blocks(scene)
        part.stop()
        store = RocksStore.open(directory)
        try:
            states = downgrade(store)
        finally:
            store.close()
        if not states:
            raise FaultError(f"there is no subscription in {directory} to upgrade: the fault was not done")
        return f"{states} subscriptions are of format {FORMAT_VERSION - 1}"

    def undo(self, scene: Scene) -> None:
        """Start it, which upgrades."""
        scene.bring_back("daemon")


def _wait_for_blocks(scene: Scene) -> None:
    """Return when slices are on the disk, today's included; spilling them takes a busy machine a while."""
    if not scene.poll(lambda: has_spilled(scene.stand.status(), scene.topic), _SPILL_TIMEOUT_S):
        raise FaultError("the daemon has spilled nothing yet: the fault was not done; send more messages")


def has_spilled(status: dict[str, Any] | None, topic: str) -> bool:
    """True if the disk has slices of the topic with messages due soon and with messages due tomorrow."""
    if status is None:
        return False
    mine = [one for one in status["subscriptions"] if one["topic"] == topic]
    # The status lists the earliest slices and counts the others.
    soon_ms = int(status["daemon"]["now_ms"]) + _SOON_MS
    starts_ms = [each["start_ms"] for one in mine for each in one["slices"] if each["state"] != "finished"]
    soon = sum(int(start_ms) < soon_ms for start_ms in starts_ms)
    later = len(starts_ms) - soon + sum(int(one["slices_omitted"]) for one in mine)
    return soon >= _SLICES_SOON_MIN and later >= _SLICES_LATER_MIN


def damage_blocks(directory: Path) -> int:
    """Change the last byte of each block in a daemon's directory; returns their number."""
    store = RocksStore.open(directory)
    try:
        batch, count = Batch(), 0
        for key, value in list(store.scan(*keys.kind_range(keys.BLOCK))):
            batch.put(key, value[:-1] + bytes([value[-1] ^ 0xFF]))
            count += 1
        store.write(batch, sync=True)
    finally:
        store.close()
    return count


def _not_ready(status: dict[str, Any] | None) -> list[str] | None:
    """The reasons of ``/readyz``; empty if the daemon is ready, None if it does not answer."""
    return None if status is None else list(status["daemon"]["not_ready"])


def _noticed(status: dict[str, Any] | None) -> int:
    """Damaged values found by the daemon since its start."""
    if status is None:
        return 0
    totals = status["totals"]
    quarantined = sum(int(one["blocks_quarantined"]) for one in status["subscriptions"])
    return max(quarantined, int(totals.get("corrupt_records", 0)))
