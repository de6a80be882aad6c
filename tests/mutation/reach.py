"""The reach of histories: each one's mutants, in a file, a line of JSON a history.

A later run continues if simulator, product and sample are the same: the file's name has a hash of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant

_AT_ONCE = 10  # histories a process
_WHAT_RUNS = ("index", "plugin", "tests/sim")
_PLANTED = "plant"  # no history has them


@dataclass(frozen=True)
class History:
    """`processor_s`: without a mutant. `met`: how often it comes to each mutant's statement, by number."""

    seed: int
    processor_s: float
    failure: str | None
    met: dict[int, int]

    @classmethod
    def from_json(cls, line: str) -> History:
        value = json.loads(line)
        met = {int(number): times for number, times in value.pop("met").items()}
        return cls(met=met, **value)


class Reach:
    """The histories of the seeds first … first + n - 1, as far as they were played."""

    def __init__(self, path: Path, first: int) -> None:
        self._path = path
        self._first = first
        self._histories: dict[int, History] = {}

    def load(self) -> None:
        """Read what is in the file, of whichever process."""
        for line in self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else ():
            history = History.from_json(line)
            self._histories[history.seed] = history

    def add(self, histories: Iterable[dict[str, Any]]) -> None:
        """Keep the answers of `judges.reached`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for history in histories:
                line = json.dumps(history)
                file.write(line + "\n")
                self._histories[history["seed"]] = History.from_json(line)

    def missing(self, count: int, at: int, of: int) -> list[int]:
        """The next few unplayed seeds of the first so many: this process's own, every `of`-th few; then the
        others', from the end. Empty if all were played.
        """
        seeds = [seed for seed in range(self._first, self._first + count) if seed not in self._histories]
        own = [seed for seed in seeds if (seed - self._first) // _AT_ONCE % of == at]
        return own[:_AT_ONCE] or seeds[-_AT_ONCE:]

    def histories(self, start: int, stop: int) -> list[History]:
        """From the start-th on, without the stop-th. Raises KeyError if one was not played."""
        return [self._histories[self._first + at] for at in range(start, stop)]


def ranked(histories: Iterable[History], number: int | None) -> list[History]:
    """Histories that come to that mutant, None for all; first those that come to it most often in a second.
    None that fails without the mutant: it tells nothing.
    """
    passing = [each for each in histories if each.failure is None]
    if number is None:
        return passing
    meeting = [each for each in passing if number in each.met]
    return sorted(meeting, key=lambda each: each.met[number] / max(each.processor_s, 1e-3), reverse=True)


def digest(root: Path, mutants: Iterable[tuple[int, Mutant]]) -> str:
    """Ten digits for what runs and for the sample."""
    hashed = hashlib.sha256()
    for folder in _WHAT_RUNS:
        for path in sorted((root / folder).rglob("*.py")):
            if path.name.startswith("test_") or path.name.startswith(_PLANTED):
                continue
            hashed.update(str(path.relative_to(root)).encode())
            hashed.update(path.read_bytes())
    hashed.update(repr(list(mutants)).encode())
    return hashed.hexdigest()[:10]
