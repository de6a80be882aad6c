"""A run of drills: each drill on each tracker for a number of rounds, on stands started at first need.

Invariants: a drill with needs that the stand does not meet fails and names them; however the run ends, every
process started here has ended and every finished round's ledger is on disk.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.plugin.drill.course import Course, Job, Progress, TooFastError, faster_pace
from tidegate.plugin.drill.drill import Drill
from tidegate.plugin.drill.fault import Need
from tidegate.plugin.drill.ledger import Record, read_ledger
from tidegate.plugin.drill.plan import SENDS_PER_S, Shape
from tidegate.plugin.drill.stands.base import RunningStand
from tidegate.plugin.drill.stands.making import Kind, can_run, kind_for, make_stand
from tidegate.plugin.drill.stands.own import OWN, Own, OwnStand
from tidegate.plugin.drill.stands.trackers import is_ours
from tidegate.plugin.drill.verdict import Verdict, judge
from tidegate.plugin.drill.watch import Watch
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.workspace import workspace
from tidegate.plugin.shared.stop import InterruptedRunError, Stop

LEDGERS = "ledgers"
WORK = "work"
# A quiet machine's rate; a slower one is asked for less.
_BURST_SENDS_PER_S = 16_000
_BURST_ATTEMPTS = 4


@dataclass(frozen=True)
class Options:
    """The user's choices; directories are absolute. ``messages``: None for each drill's own number.

    A drill's ``rounds`` are consecutive and give one result; the whole is repeated ``passes`` times, on the
    same stands if reusable. ``newer_home``: the Pulsar of drills that upgrade. ``watched``: ask for the
    daemon's status all the time, for the view and the picture.
    """

    drills: Sequence[Drill]
    trackers: Sequence[str]
    rounds: int
    messages: int | None
    pulsar_home: Path
    jar: Path | None
    out_dir: Path
    seed: int
    own: Own | None = None
    key_shared: bool = False
    passes: int = 1
    watched: bool = False
    newer_home: Path | None = None


@dataclass(frozen=True)
class Result:
    """A drill on one tracker: each round's verdict, and the reason for missing rounds."""

    drill: str
    does: str
    tracker: str
    verdicts: Sequence[Verdict]
    failures: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        """True if there was a round and every round passed."""
        return bool(self.verdicts) and not self.failures and all(one.passed for one in self.verdicts)


class Session:
    """One run; other threads may read ``progress``.

    ``stuck``, after ``run``: a thread is still inside the client's library, which aborts the process if
    Python ends in the ordinary way.
    """

    def __init__(self, options: Options, stop: Stop, now_us: Callable[[], int]) -> None:
        self.progress = Progress(began_us=now_us())
        self.stop = stop
        self.stuck = False
        self._options = options
        self._now_us = now_us
        self._stand: RunningStand | None = None
        self._kind: Kind | None = None
        self._own: OwnStand | None = None
        self._sends_per_s = _BURST_SENDS_PER_S
        self._stand_dir: Path | None = None
        self._told_wrong = False

    def run(self) -> Generator[Result, None, None]:
        """Each result as soon as it is known. Raises ``InterruptedRunError`` when the end was requested."""
        place = workspace(self._options.out_dir, (LEDGERS, WORK), busy="another demo or drill works")
        with place as socket_dir, self._own_cluster(), Guard() as guard:
            for tracker in self._options.trackers:
                try:
                    for number in range(self._options.passes):
                        for drill in drills_with(tracker, self._options.drills):
                            first = number * self._options.rounds + 1
                            yield self._drill(drill, tracker, first, socket_dir, guard)
                finally:
                    self._end_stand()

    def _drill(self, drill: Drill, tracker: str, first: int, socket_dir: Path, guard: Guard) -> Result:
        """Run its rounds, numbered from ``first``."""
        options, progress = self._options, self.progress
        if options.messages is not None:
            drill = replace(drill, load=replace(drill.load, messages=options.messages))
        progress.drill, progress.does, progress.tracker = drill.name, drill.does, tracker
        verdicts: list[Verdict] = []
        failures: list[str] = []
        for number in range(first, first + options.rounds):
            progress.round = f"{number} of {options.rounds * options.passes}"
            try:
                stand = self._stand_for(drill, tracker, socket_dir, guard)
                _check_needs(drill, stand)
                verdicts.append(self._round(drill, number, stand))
            except InterruptedRunError:
                self._told_wrong = True
                raise
            except UserError as error:
                self._told_wrong = True
                failures.append(str(error))
                # It may be in any state: the next round gets another.
                self._end_stand()
                break
        result = Result(drill.name, drill.does, tracker, verdicts, failures)
        progress.finished.append((drill.name, tracker, result.passed))
        return result

    def _round(self, drill: Drill, number: int, stand: RunningStand) -> Verdict:
        attempt = 1
        while True:
            try:
                verdict = self._attempt(drill, number, stand, again=attempt < _BURST_ATTEMPTS)
                # The last attempt counts even if late, as does an aborted one.
                if drill.load.shape is Shape.BURST and attempt < _BURST_ATTEMPTS and not verdict.aborted:
                    self._sends_per_s = faster_pace(self._sends_per_s, _BURST_SENDS_PER_S)
                break
            except TooFastError as error:
                attempt += 1
                self._sends_per_s = error.sends_per_s
                self.progress.events.append((0.0, f"{error}: once more, with more time"))
        self._told_wrong |= not verdict.passed
        if verdict.lost or verdict.unconfirmed or verdict.aborted or Need.NEWER in drill.needs:
            # A failed round must not affect the next one, nor must an upgraded broker.
            self._end_stand()
        return verdict

    def _attempt(self, drill: Drill, number: int, stand: RunningStand, *, again: bool) -> Verdict:
        """One round. Raises ``TooFastError``, which leaves no ledger, if the round may start again."""
        at_once = drill.load.shape is not Shape.EVEN
        job = Job(
            drill=drill,
            number=number,
            seed=self._options.seed + number,
            run=secrets.randbits(32),
            directory=self._options.out_dir / LEDGERS / f"{drill.name}-{stand.tracker}-{number}",
            key_shared=self._options.key_shared,
            sends_per_s=self._sends_per_s if at_once else SENDS_PER_S,
            again=again,
        )
        course = Course(job, stand, self.stop, self.progress, self._now_us)
        try:
            return course.run()
        except TooFastError:
            shutil.rmtree(job.directory)
            raise
        finally:
            self.stuck = self.stuck or course.stuck

    def _stand_for(self, drill: Drill, tracker: str, socket_dir: Path, guard: Guard) -> RunningStand:
        """The running stand if it suits, else another."""
        if self._own is not None:
            return self._own
        kind = kind_for(drill.needs)
        if self._stand is not None and self._kind is not kind:
            self._end_stand()
        if self._stand is None:
            self.progress.phase = f"starting a {kind}"
            self._kind = kind
            self._stand_dir, self._told_wrong = self._work_dir(tracker), False
            self._stand = make_stand(
                kind,
                tracker,
                pulsar_home=self._options.pulsar_home,
                newer_home=self._options.newer_home,
                jar=self._options.jar,
                work_dir=self._stand_dir,
                socket_dir=Path(tempfile.mkdtemp(dir=socket_dir)),
                guard=guard,
                pause=self.stop.pause,
            )
            self._stand.start()
            if self._options.watched and is_ours(tracker):
                self.progress.watch = Watch(self._stand.status, self._now_us)
                self.progress.watch.start()
        return self._stand

    @contextlib.contextmanager
    def _own_cluster(self) -> Iterator[None]:
        """The user's cluster, if the drills run there: one for all."""
        if self._options.own is None:
            yield
            return
        self.progress.phase = "asking your cluster"
        self._own = OwnStand(self._options.own, self._work_dir(OWN), pause=self.stop.pause)
        self._own.start()
        try:
            yield
        finally:
            self._own.end()

    @property
    def left(self) -> list[str]:
        """Remains on the user's cluster, a line each."""
        return [] if self._own is None else self._own.left

    def _work_dir(self, tracker: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{tracker}-", dir=self._options.out_dir / WORK))

    def _end_stand(self) -> None:
        stand, self._stand = self._stand, None
        if stand is not None:
            self.progress.phase = "stopping every process"
            if self.progress.watch is not None:
                self.progress.watch.close()
            stand.end()
            if self._stand_dir is not None and not self._told_wrong:
                # Logs and data stay, for finding a failure's cause.
                shutil.rmtree(self._stand_dir, ignore_errors=True)


def drills_with(tracker: str, drills: Sequence[Drill]) -> list[Drill]:
    """The drills that compare the tracker; on a user's own cluster all."""
    return [drill for drill in drills if tracker == OWN or can_run(drill.needs, tracker)]


def ledgers_of(out_dir: Path) -> list[Path]:
    """A run's ledgers in ``out_dir``, finished or not, ordered by name."""
    directory = out_dir / LEDGERS
    return sorted(path.parent for path in directory.glob("*/round.json"))


def results_of(ledgers: Sequence[Path], does: Callable[[str], str]) -> list[Result]:
    """The results from the ledgers on disk, one for each drill and tracker. Raises ``UserError``."""
    records: dict[tuple[str, str], list[Record]] = {}
    for directory in ledgers:
        record = read_ledger(directory)
        records.setdefault((record.round.drill, record.round.tracker), []).append(record)
    return [
        Result(
            name, does(name), tracker, [judge(one) for one in sorted(found, key=lambda it: it.round.number)]
        )
        for (name, tracker), found in records.items()
    ]


def _check_needs(drill: Drill, stand: RunningStand) -> None:
    missing = [need for need in drill.needs if need not in stand.offers]
    if missing:
        said = "; ".join(
            f"{need} ({stand.lacking[need]})" if need in stand.lacking else need for need in missing
        )
        raise UserError(f"the fault could not be done on this {stand.name}, which does not have: {said}")
