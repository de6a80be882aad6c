"""Runs rounds of drills in spare time, and adds each to the file at once.

Invariants: the file has every finished round, however the run ends; the pair with the fewest rounds comes
first, so many short runs even out; ledgers and logs of failed rounds stay.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.drills import cells, table
from bench.harness.errors import BenchError
from bench.harness.machine import ROOT, machine, revision
from tidegate.plugin.commands.running import check_home, check_jar, check_newer_home, signals_stop
from tidegate.plugin.drill.catalogue import DRILLS, named
from tidegate.plugin.drill.report import as_json
from tidegate.plugin.drill.session import LEDGERS, Options, Result, Session, drills_with
from tidegate.plugin.drill.stands.making import kind_for
from tidegate.plugin.drill.stands.trackers import COMPARED, OURS
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.stop import InterruptedRunError, Stop

Say = Callable[[str], None]
_KEPT_MAX = 40
# A stand for one drill alone is not started for a single round.
_ROUNDS_A_STAND = 8


def wanted(names: Sequence[str], compare: Sequence[str]) -> list[tuple[str, str]]:
    """All (drill, tracker) pairs, ours first; raises ``BenchError`` for an unknown name."""
    try:
        drills = [named(name) for name in names] or list(DRILLS)
    except UserError as error:
        raise BenchError(str(error)) from error
    for tracker in compare:
        if tracker not in COMPARED:
            raise BenchError(f"--compare takes {', '.join(COMPARED)}, not {tracker}")
    return [(drill.name, tracker) for tracker in (OURS, *compare) for drill in drills_with(tracker, drills)]


def run(
    pairs: Sequence[tuple[str, str]], *, path: Path, out_dir: Path, rounds_max: int, for_s: float, say: Say
) -> bool:
    """Run until every pair has ``rounds_max`` rounds or the time is over; returns true if interrupted.

    ``say`` gets messages, a line each. The end comes within a round of the time.
    """
    rounds = cells.load(path)
    rounds.batches.append(_batch())
    say(cells.told(rounds, pairs, rounds_max))
    stop = Stop("the drills")
    deadline_s = time.monotonic() + for_s
    failing: set[tuple[str, str]] = set()
    with signals_stop(stop):
        while group := cells.following(
            rounds,
            pairs,
            rounds_max=rounds_max,
            left_s=deadline_s - time.monotonic(),
            together=lambda name: kind_for(named(name).needs),
            skip=failing,
        ):
            fewest = rounds.cell(*group[0]).rounds
            passes = min(math.ceil(_ROUNDS_A_STAND / len(group)), rounds_max - fewest)
            options = _options(group, out_dir, seed=fewest, passes=passes)
            begun_s = time.monotonic()
            session = Session(options, stop, _now_us)
            try:
                with contextlib.closing(session.run()) as results:
                    for result in results:
                        took_s, begun_s = time.monotonic() - begun_s, time.monotonic()
                        rounds.add(as_json(result), took_s)
                        cells.save(rounds, path)
                        cell = rounds.cell(result.drill, result.tracker)
                        say(f"{_line(result, took_s)}; {cell.rounds} of {rounds_max}, {cell.failed} failed")
                        if not result.passed:
                            _keep(out_dir, result)
                        if not result.verdicts:
                            # Impossible here, and so a minute later.
                            failing.add((result.drill, result.tracker))
                            break
                        if time.monotonic() > deadline_s:
                            return False
            except InterruptedRunError:
                return True
    return False


def _options(group: Sequence[tuple[str, str]], out_dir: Path, *, seed: int, passes: int) -> Options:
    return Options(
        drills=[named(name) for name, _ in group],
        trackers=[group[0][1]],
        rounds=1,
        messages=None,
        pulsar_home=check_home(None),
        jar=check_jar(),
        out_dir=out_dir,
        seed=seed,
        passes=passes,
        newer_home=check_newer_home(None),
    )


def _line(result: Result, took_s: float) -> str:
    shown = as_json(result)
    told = "pass" if result.passed else f"FAIL: {'; '.join(shown['reasons'])}"
    return f"{result.drill} with {result.tracker}, {took_s:.0f} s: {told}"


def _keep(out_dir: Path, result: Result) -> None:
    """Keep the evidence: the round's ledger, and the logs."""
    kept = out_dir / "failed" / f"{result.drill}-{result.tracker}-{int(time.time())}"
    if len(list(kept.parent.glob("*"))) >= _KEPT_MAX:
        return
    shutil.copytree(out_dir / LEDGERS, kept / LEDGERS, dirs_exist_ok=True)
    for log in (out_dir / "work").rglob("*.log"):
        target = kept / "logs" / log.relative_to(out_dir / "work")
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            shutil.copyfile(log, target)


def _now_us() -> int:
    return time.time_ns() // 1000


def pages() -> dict[Path, tuple[str, int]]:
    """The file's text for each page that shows it, and its number of rounds."""
    rounds = cells.load(cells.FILE)
    shown = cells.in_order(rounds, wanted([], COMPARED))
    count = sum(cell.rounds for cell in shown)
    return {
        cells.FILE.with_name("README.md"): (table.by_drill(shown, rounds.batches), count),
        ROOT / "README.md": (table.by_tracker(shown), count),
        cells.FILE.with_name("other-pulsars.md"): _by_version(),
    }


def _by_version() -> tuple[str, int]:
    """A table for each other Pulsar, and the number of rounds."""
    parts, count = [], 0
    for version, path in cells.other_files().items():
        rounds = cells.load(path)
        shown = cells.in_order(rounds, wanted([], COMPARED))
        parts.append(f"Pulsar {version}:\n\n{table.by_drill(shown, rounds.batches)}")
        count += sum(cell.rounds for cell in shown)
    return "\n\n".join(parts), count


def add_files(sources: Sequence[Path], path: Path) -> None:
    """Add the rounds of other files: of this kind, or drills' own results as JSON Lines.

    The latter get the present load, their own being unknown. One invalid file: nothing is added.
    """
    rounds = cells.load(path)
    for source in sources:
        try:
            text = source.read_text(encoding="utf-8")
        except OSError as error:
            raise BenchError(f"{source} cannot be read: {error}") from error
        other = cells.parse(text)
        if other is not None:
            rounds.merge(other)
            continue
        try:
            found = [json.loads(line) for line in text.splitlines()]
            rounds.batches.append(_batch())
            for one in found:
                rounds.add(one)
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(
                f"{source} is neither such a file as {path.name} nor what `tidegate drill run --json` "
                f"writes: {error}"
            ) from error
    cells.save(rounds, path)


def _batch() -> cells.Batch:
    place = machine()
    return cells.Batch(
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        revision=revision(),
        cpu=place.cpu,
        cores=place.cores,
        load_1min=place.load_1min_at_start,
    )


def lower_priority() -> None:
    """Give way to all other processes: for rounds beside other work."""
    os.nice(10)
