"""A real daemon, its power cut again and again: nothing that it answered DURABLE may be gone.

One *life*: the daemon runs with recorder.c preloaded, a client sends frames and notes the record's length at
each DURABLE; then the daemon is killed. Its record yields any number of *cuts*, each at any moment of the
life. The remains are opened; every subscription must be as after some sent frame, no earlier than the last
durable one. The whole record must make exactly the existing files, and no near entry may have been handed
out. The next life starts from one of the cuts.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import random
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.shim_client import ClientStream, ShimClient
from tests.torture.disk import Disk, Entry, Operation, entries_of
from tests.torture.workload import Believed, Frame, Workload
from tidegate.index import (
    Catalog,
    DelayIndex,
    Entries,
    PositionSet,
    RocksStore,
    SubscriptionName,
    SystemClock,
    TidegateIndexError,
)
from tidegate.plugin.local.daemon import without_settings

HERE = Path(__file__).parent
TOPIC = "persistent://public/default/orders"
SUBSCRIPTIONS = ("busy", "slow", "quiet")
WEIGHTS = (10, 4, 1)
START_SECONDS = 60.0
_REFUSED = "it cannot be opened: "
_HEADER_BYTES = 7  # of a record of RocksDB's WAL
HOW = ("none", "prefix", "torn", "scattered", "any", "any", "behind", "behind", "behind")
SETTINGS = {
    "TIDEGATE_STAGING_BYTES": "65536",
    "TIDEGATE_STAGING_BYTES_MAX": "1048576",
    "TIDEGATE_MAINTAIN_INTERVAL_MS": "10",
    "TIDEGATE_HEARTBEAT_MS": "60000",
}


class TortureError(Exception):
    """The torture itself cannot run; the message names the missing part."""


def compiled(directory: Path, source: str = "recorder.c") -> Path:
    """The library to preload. Raises TortureError without a C compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise TortureError("a C compiler is needed for the torture (Debian: apt-get install gcc libc6-dev)")
    library = (directory / source).with_suffix(".so")
    libraries = ["-lpthread", "-ldl"]
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(HERE / source), *libraries]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TortureError(f"{source} cannot be compiled: {done.stderr}")
    return library


@dataclass
class Life:
    """The calls of one life of the daemon.

    base: the daemon's knowledge at its begin, by subscription. frames: those sent after that. notes: at so
    many bytes of the record, so many frames of each subscription were durable. may_come: entries ever due,
    without those near throughout.
    """

    root: Path
    record: Path
    base: dict[str, Believed]
    frames: dict[str, list[Frame]] = field(default_factory=lambda: {name: [] for name in SUBSCRIPTIONS})
    notes: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    may_come: dict[str, PositionSet] = field(
        default_factory=lambda: {name: PositionSet() for name in SUBSCRIPTIONS}
    )

    def durable_at(self, record_bytes: int) -> dict[str, int]:
        """Durable frames of each subscription at so many bytes of the record."""
        at = bisect_right([noted for noted, _ in self.notes], record_bytes)
        return self.notes[at - 1][1] if at else dict.fromkeys(SUBSCRIPTIONS, 0)


@dataclass(frozen=True)
class Lost:
    """A cut with a fault after it."""

    where: str
    what: str


@dataclass
class Summary:
    """The torture's counts and findings."""

    lives: int = 0
    cuts: int = 0
    frames: int = 0
    durable_frames: int = 0
    torn_manifests: int = 0
    lost: list[Lost] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.lives} lives, {self.cuts} power cuts, {self.frames} frames, "
            f"{self.durable_frames} of them durable, {len(self.lost)} cuts that lost something, "
            f"{self.torn_manifests} that were refused for a torn manifest"
        )


class Torture:
    """Runs lives and cuts below a directory of its own."""

    def __init__(self, directory: Path, seed: int, *, broken: str = "", small: bool = True) -> None:
        """broken: a fault of the daemon, on purpose. small: with small buffers."""
        self.summary = Summary()
        self._directory = directory
        self._rng = random.Random(seed)  # noqa: S311 - a test's data, not a secret
        self._seed = seed
        self._broken = broken
        self._small = small
        self._library = compiled(directory)
        self._start_ms = time.time_ns() // 1_000_000
        self._workloads = {name: Workload(self._rng, self._start_ms) for name in SUBSCRIPTIONS}
        self._base: Path | None = None
        self._believed = {name: Believed() for name in SUBSCRIPTIONS}

    def round(self, cuts: int, rounds_of_frames: int = 60) -> None:
        """One life and `cuts` cuts of it; the next round goes on from the last one that lost nothing."""
        number = self.summary.lives
        place = self._directory / f"life-{number}"
        root = place / "root"
        if self._base is None:
            root.mkdir(parents=True)
        else:
            place.mkdir()
            shutil.copytree(self._base, root)
        disk = Disk(root)
        life = Life(root, place / "record", {name: each.copy() for name, each in self._believed.items()})
        asyncio.run(self._live(life, rounds_of_frames))
        entries = list(entries_of(life.record.read_bytes()))
        self.summary.lives += 1
        self.summary.frames += sum(map(len, life.frames.values()))
        self.summary.durable_frames += sum(life.durable_at(entries[-1].end).values())
        moments = [*sorted(self._moment(entries) for _ in range(cuts - 1)), len(entries)]
        done = 0
        for cut, moment in enumerate(moments):
            for entry in entries[done:moment]:
                disk.replay(entry)
            done = moment
            self._cut(life, disk, entries[moment - 1], place / f"cut-{cut}", f"life {number}, cut {cut}")
        unrecorded = disk.unrecorded(place)
        if unrecorded:
            raise AssertionError(f"life {number}: not as it is recorded: {', '.join(unrecorded)}")
        shutil.rmtree(root)

    def _moment(self, entries: list[Entry]) -> int:
        """Number of entries before the cut. Half of the cuts are amid a sync, where a disk spends its
        time.
        """
        moment = self._rng.randrange(1, len(entries))
        if self._rng.random() < 0.5:
            return moment
        ends = (at for at in range(moment, len(entries)) if entries[at].operation is Operation.SYNC_ENDED)
        return next(ends, moment)

    def _cut(self, life: Life, disk: Disk, last: Entry, left: Path, where: str) -> None:
        how = self._rng.choice(HOW)
        left.mkdir()
        disk.cut(left, self._rng, how)
        kept = left.with_name(f"{left.name}-kept")
        shutil.copytree(left, kept)
        self.summary.cuts += 1
        found: dict[str, Believed] = {}
        wrong = _check(left / "data", life, life.durable_at(last.end), found)
        shutil.rmtree(left)
        if wrong.startswith(_REFUSED) and _has_torn_manifest(kept, disk):
            self.summary.torn_manifests += 1
            shutil.rmtree(kept)
            return
        if wrong:
            self.summary.lost.append(Lost(f"seed {self._seed}, {where} ({how}), kept in {kept}", wrong))
            return
        if self._base is not None:
            shutil.rmtree(self._base)
        self._base, self._believed = kept, found

    async def _live(self, life: Life, rounds: int) -> None:
        process = self._start(life)
        try:
            client = await _connected(life.root.parent / "s", process, life.root.parent / "log")
            streams = {}
            believed = {name: each.copy() for name, each in life.base.items()}
            for name in SUBSCRIPTIONS:
                streams[name] = await client.open(TOPIC, name, mark_delete=believed[name].mark)
                answered = Believed(streams[name].held, streams[name].acknowledged, believed[name].mark)
                if answered != believed[name]:
                    raise AssertionError(f"{name}: HELD is not what the cut had left")
                life.may_come[name].update(answered.to_hand_out())
            for _ in range(rounds):
                await self._send(life, streams, believed)
            with life.record.open("rb") as record:
                # So nothing is killed between a call and its record.
                fcntl.flock(record, fcntl.LOCK_EX)
                process.kill()
                process.wait(START_SECONDS)
            await client.disconnect()
            for name, stream in streams.items():
                came = PositionSet.of_entries(Entries.concat(stream.due))
                if not came.issubset(life.may_come[name]):
                    raise AssertionError(f"{name}: what the broker has already was handed out")
        finally:
            process.kill()
            process.wait(START_SECONDS)

    async def _send(
        self, life: Life, streams: dict[str, ClientStream], believed: dict[str, Believed]
    ) -> None:
        for name in self._rng.choices(SUBSCRIPTIONS, WEIGHTS, k=self._rng.randint(1, 4)):
            frame = self._workloads[name].frame(believed[name])
            streams[name].change(frame)
            believed[name].apply(frame)
            life.frames[name].append(frame)
            life.may_come[name].update(believed[name].to_hand_out())
        if self._rng.random() < 0.7:
            for name in self._rng.sample(SUBSCRIPTIONS, 2):
                await streams[name].durable()
        # The record is longer than when these became durable, never shorter: no cut is blamed wrongly.
        durable = {name: stream.durable_seq for name, stream in streams.items()}
        life.notes.append((life.record.stat().st_size, durable))

    def _start(self, life: Life) -> subprocess.Popen[bytes]:
        environment = without_settings(os.environ) | SETTINGS
        environment |= {
            "LD_PRELOAD": str(self._library),
            "TORTURE_ROOT": str(life.root),
            "TORTURE_RECORD": str(life.record),
            "TORTURE_BROKEN": self._broken,
        }
        program = [str(HERE / "children" / "daemon.py")] if self._small or self._broken else []
        command = [sys.executable, *(program or ["-m", "tidegate.plugin.cli"]), "serve"]
        place = life.root.parent
        with (place / "log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--data", str(life.root / "data"), "--socket", str(place / "s")],
                env=environment,
                stdout=log,
                stderr=log,
            )


async def _connected(socket: Path, process: subprocess.Popen[bytes], log: Path) -> ShimClient:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                return await ShimClient.connect(socket)
            except OSError:
                if process.poll() is not None:
                    raise AssertionError(f"the daemon does not start: {log.read_text()}") from None
                await asyncio.sleep(0.02)


def _has_torn_manifest(left: Path, disk: Disk) -> bool:
    """True if the cut has left zeros and then data behind the synced part of RocksDB's manifest.

    A disk that has lost a synced sector may look the same, so such a directory is refused.
    """
    synced = left.with_name(f"{left.name}-synced")
    synced.mkdir()
    disk.cut(synced, random.Random(0), "none")  # noqa: S311 nothing is drawn
    try:
        for manifest in (left / "data").glob("MANIFEST-*"):
            before = synced / "data" / manifest.name
            tail = manifest.read_bytes()[before.stat().st_size if before.exists() else 0 :]
            if not any(tail[:_HEADER_BYTES]) and any(tail):
                return True
    finally:
        shutil.rmtree(synced)
    return False


def _check(data: Path, life: Life, durable: dict[str, int], found: dict[str, Believed]) -> str:
    """Faults of the directory left by a cut, empty without any; fills `found`."""
    if not data.is_dir():
        found |= {name: Believed() for name in SUBSCRIPTIONS}
        return "" if not any(durable.values()) and _is_nothing(life.base) else "the data directory is gone"
    try:
        store = RocksStore.open(data)
        loss = store.loss()
        catalog = Catalog.open(store, SystemClock())
    except TidegateIndexError as error:
        return f"{_REFUSED}{error}"
    try:
        if loss is not None:
            return f"an honest power cut is called damage: {loss}"
        if catalog.stats().corrupt_records:
            return f"{catalog.stats().corrupt_records} stored values are corrupt"
        for name in SUBSCRIPTIONS:
            index = catalog.get(SubscriptionName(TOPIC, name))
            wrong = _compare(index, life.base[name], life.frames[name], durable[name], found, name)
            if wrong:
                return f"{name}: {wrong}"
            if index is not None:
                index.check()
    finally:
        catalog.close()
    return ""


def _is_nothing(base: dict[str, Believed]) -> bool:
    return all(each == Believed() for each in base.values())


def _compare(
    index: DelayIndex | None,
    base: Believed,
    frames: list[Frame],
    durable: int,
    found: dict[str, Believed],
    name: str,
) -> str:
    is_now = Believed()
    if index is not None:
        is_now = Believed(index.state.held.snapshot(), index.state.acknowledged.snapshot(), index.state.mark)
    was = base.copy()
    for frame in frames[:durable]:
        was.apply(frame)
    at_least = was.copy()
    for after in range(durable, len(frames) + 1):
        if was == is_now:
            found[name] = is_now
            return ""
        if after < len(frames):
            was.apply(frames[after])
    missing = at_least.held.difference(is_now.held)
    return (
        f"as after none of the frames {durable} to {len(frames)}: of what was held and durable "
        f"{len(missing)} are missing ({len(is_now.held)} are held); {len(is_now.acknowledged)} are known "
        f"acknowledged, {len(at_least.acknowledged)} were; mark-delete is {is_now.mark}, was {at_least.mark}"
    )


def kept_directories(summary: Summary) -> str:
    """Where to look."""
    return "\n".join(f"{each.where}: {each.what}" for each in summary.lost)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        print(f"torture: {name} is a number, not {text}", file=sys.stderr)
        sys.exit(2)
    return int(text)


def main() -> None:
    """`python -m tests.torture.power_cuts`: ROUNDS lives (0: for ever) of 25 cuts, each with a new seed.

    The environment says how: ROUNDS, SEED of a run to repeat, TORTURE_DIR for what it needs on the disk.
    """
    argparse.ArgumentParser("python -m tests.torture.power_cuts", description=main.__doc__).parse_args()
    rounds = _number("ROUNDS", 40)
    seed = _number("SEED", random.SystemRandom().randrange(1 << 32))
    place = Path(os.environ.get("TORTURE_DIR", "build/torture")).absolute()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    print(f"power cuts below {place}; to repeat this run as far as threads allow: SEED={seed}", flush=True)
    try:
        torture = Torture(place, seed)
        while not rounds or torture.summary.lives < rounds:
            torture.round(25, 250)
            print(torture.summary.line(), flush=True)
            if torture.summary.lost:
                print(kept_directories(torture.summary), flush=True)
                sys.exit(1)
    except TortureError as error:
        print(f"torture: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(torture.summary.line())


if __name__ == "__main__":
    main()
