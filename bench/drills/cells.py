"""The record of rounds of drills: a cell for each drill and tracker, with counts and a time a round.

Rounds accumulate in spare time, so a cell can grow. Invariants: no single message is here, so 20 rounds of
everything are some 50 kB; times have three digits; a field keeps its meaning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.harness.errors import BenchError
from bench.harness.results import RESULTS
from tidegate.plugin.local.distribution import PULSAR

FILE = RESULTS / "drills" / "drills.json"
_OF_VERSION = "pulsar-{}.json"
TIMES = ("down_s", "first_due_s", "gap_s", "p99_ms", "max_ms", "read_again")
COUNTS = ("sent", "lost", "early", "sent_twice", "unconfirmed")


class Batch(BaseModel):
    """Rounds of one run: its time, its revision, and the machine's load."""

    model_config = ConfigDict(extra="forbid")

    started_at: str
    revision: str
    cpu: str
    cores: int
    load_1min: float = Field(description="when it began, before anything of its own ran")
    rounds: int = 0


class Cell(BaseModel):
    """All rounds of one drill with one tracker.

    ``times``: a value a round, None for an event that did not happen.

    ``failed``: rounds that did not pass; ``reasons``: each with its number of rounds. ``batches``: each
    round's batch by its index in the file, which has its revision; None in older records.
    """

    model_config = ConfigDict(extra="forbid")

    drill: str
    tracker: str
    rounds: int = 0
    failed: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    repeated: dict[str, int] = Field(default_factory=dict)
    times: dict[str, list[int | float | None]] = Field(default_factory=dict)
    reasons: dict[str, int] = Field(default_factory=dict)
    batches: list[int | None] = Field(default_factory=list)
    took_s: float = Field(default=60.0, description="the latest round with all around it")


class Rounds(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid")

    schema_: int = Field(default=2, alias="schema")
    batches: list[Batch] = Field(default_factory=list)
    cells: list[Cell] = Field(default_factory=list)

    def cell(self, drill: str, tracker: str) -> Cell:
        """The cell, made if missing."""
        for cell in self.cells:
            if (cell.drill, cell.tracker) == (drill, tracker):
                return cell
        self.cells.append(Cell(drill=drill, tracker=tracker))
        return self.cells[-1]

    def add(self, found: dict[str, Any], took_s: float | None = None) -> None:
        """Add the result of ``tidegate drill run --json`` for one drill with one tracker."""
        cell = self.cell(found["drill"], found["tracker"])
        before = cell.rounds
        for one in found["rounds"]:
            _add_round(cell, one)
        if not found["rounds"]:
            # The drill was not done: a failed round without other data.
            cell.rounds += 1
            cell.failed += 1
            for reason in found["reasons"]:
                cell.reasons[_general(reason)] = cell.reasons.get(_general(reason), 0) + 1
        cell.batches += [None] * (before - len(cell.batches))
        cell.batches += [len(self.batches) - 1 if self.batches else None] * (cell.rounds - before)
        if took_s is not None:
            cell.took_s = round(took_s / max(len(found["rounds"]), 1), 1)
        if self.batches:
            self.batches[-1].rounds += max(len(found["rounds"]), 1)

    def merge(self, other: Rounds) -> None:
        """Add the rounds of another file, run beside these or on another machine."""
        first = len(self.batches)
        self.batches += other.batches
        for theirs in other.cells:
            cell = self.cell(theirs.drill, theirs.tracker)
            cell.batches += [None] * (cell.rounds - len(cell.batches))
            cell.batches += [None if at is None else first + at for at in theirs.batches]
            for mine, added in (
                (cell.counts, theirs.counts),
                (cell.repeated, theirs.repeated),
                (cell.reasons, theirs.reasons),
            ):
                for name, count in added.items():
                    mine[name] = mine.get(name, 0) + count
            for name, values in theirs.times.items():
                cell.times.setdefault(name, []).extend(values)
            cell.rounds += theirs.rounds
            cell.failed += theirs.failed
            cell.took_s = theirs.took_s


def _add_round(cell: Cell, one: dict[str, Any]) -> None:
    cell.rounds += 1
    cell.failed += one["verdict"] != "pass"
    for name in COUNTS:
        cell.counts[name] = cell.counts.get(name, 0) + one[name]
    for cause, count in one["repeated_by_cause"].items():
        if count:
            cell.repeated[cause] = cell.repeated.get(cause, 0) + count
    late = {f"{name}_ms": value for name, value in (one["lateness_ms"] or {}).items()}
    for name in TIMES:
        cell.times.setdefault(name, []).append(_short(late.get(name, one.get(name))))
    for reason in one["reasons"]:
        cell.reasons[_general(reason)] = cell.reasons.get(_general(reason), 0) + 1


def _short(value: float | None) -> float | None:
    """Three significant digits."""
    if value is None:
        return None
    short = float(f"{value:.3g}")
    return int(short) if short.is_integer() else short


def _general(reason: str) -> str:
    """A reason without numbers and local paths, so that two rounds can share it."""
    words = [word for word in reason.split() if not word.startswith(("/", "http://"))]
    return " ".join("…" if word.strip("().,:;").replace(",", "").isdigit() else word for word in words)[:120]


def file_of(version: str) -> Path:
    """The file of the rounds on that Pulsar: the usual one's are never mixed with another's."""
    return FILE if version == PULSAR.version else FILE.with_name(_OF_VERSION.format(version))


def other_files(directory: Path = FILE.parent) -> dict[str, Path]:
    """The files of other Pulsars that are there, by version."""
    before, _, after = _OF_VERSION.partition("{}")
    found = sorted(directory.glob(_OF_VERSION.format("*")))
    return {path.name.removeprefix(before).removesuffix(after): path for path in found}


def load(path: Path) -> Rounds:
    """The file's rounds, none without a file. Raises ``BenchError``."""
    try:
        return Rounds.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Rounds()
    except (OSError, ValidationError) as error:
        raise BenchError(f"{path} is not a file of drills: {error}; start one with --fresh") from error


def parse(text: str) -> Rounds | None:
    """The rounds in a file's text; None for another kind of file."""
    try:
        return Rounds.model_validate_json(text)
    except ValidationError:
        return None


def save(rounds: Rounds, path: Path) -> None:
    """Write the file whole, a line a cell, so that its diffs are readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    batches = [one for one in rounds.batches if one.rounds]
    known = [one for one in rounds.cells if one.rounds]
    lines = [",\n".join(one.model_dump_json() for one in part) for part in (batches, known)]
    text = f'{{"schema": 2,\n"batches": [\n{lines[0]}\n],\n"cells": [\n{lines[1]}\n]}}\n'
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def following(
    rounds: Rounds,
    wanted: Sequence[tuple[str, str]],
    *,
    rounds_max: int,
    left_s: float,
    together: Callable[[str], str],
    skip: Collection[tuple[str, str]] = (),
) -> list[tuple[str, str]]:
    """The (drill, tracker) pairs to run next, on one stand; empty if all are done, or no time is left.

    Fewest rounds first, in the order of ``wanted``; ``together`` names a drill's stand.
    """
    fits = [
        pair
        for pair in wanted
        if (cell := rounds.cell(*pair)).rounds < rounds_max and cell.took_s <= left_s and pair not in skip
    ]
    if not fits:
        return []
    fewest = min(rounds.cell(*pair).rounds for pair in fits)
    first = next(pair for pair in fits if rounds.cell(*pair).rounds == fewest)
    stand = (together(first[0]), first[1])
    return [
        pair for pair in fits if rounds.cell(*pair).rounds == fewest and (together(pair[0]), pair[1]) == stand
    ]


def told(rounds: Rounds, wanted: Collection[tuple[str, str]], rounds_max: int) -> str:
    """The progress: rounds, failures, and the time for the others, in words."""
    known = [rounds.cell(*pair) for pair in wanted]
    done = sum(min(cell.rounds, rounds_max) for cell in known)
    failed = sum(cell.failed for cell in known)
    left_s = sum(max(rounds_max - cell.rounds, 0) * cell.took_s for cell in known)
    return (
        f"{done:,} of {len(known) * rounds_max:,} rounds ({len(known)} drills and trackers, "
        f"{rounds_max} of each), {failed:,} failed; the others take about {left_s / 3_600:.1f} h"
    )


def in_order(rounds: Rounds, wanted: Iterable[tuple[str, str]]) -> list[Cell]:
    """The cells with rounds, in the order of ``wanted``, the rest at the end."""
    places = {pair: number for number, pair in enumerate(wanted)}
    cells = [cell for cell in rounds.cells if cell.rounds]
    return sorted(cells, key=lambda cell: places.get((cell.drill, cell.tracker), len(places)))
