"""The verdict on each mutant, a line of JSON each, and the table of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant

KEPT = Path(__file__).parent / "results.jsonl"
REASONS = Path(__file__).parent / "unchanged.json"


@dataclass
class Result:
    """`number`: its place in the sample. `simulator`: see `judges.hunt`, of no histories if none comes to it;
    None if it was not asked. `test`: which one failed first, None if none did. `tested`: how many files were
    run, 0 if the tests were not asked."""

    number: int
    mutant: Mutant
    simulator: dict[str, Any] | None = None
    test: str | None = None
    tested: int = 0

    @property
    def by_simulator(self) -> bool:
        """True if the simulator has found it."""
        return self.simulator is not None and self.simulator["failure"] is not None

    @property
    def killed(self) -> bool:
        """True if anything has."""
        return self.by_simulator or self.test is not None

    def is_judged(self, by: str) -> bool:
        """True if nothing is left to ask of the simulator, the tests, or both."""
        return (by == "tests" or self.simulator is not None) and (by == "simulator" or self.tested > 0)

    def with_more(self, later: Result) -> Result:
        """The results of both, of one mutant; where both have one, the later."""
        if later.mutant != self.mutant:
            return later
        return Result(
            self.number,
            self.mutant,
            later.simulator or self.simulator,
            later.test if later.tested else self.test,
            later.tested or self.tested,
        )

    def to_json(self) -> str:
        """A line."""
        return json.dumps({**asdict(self), "mutant": asdict(self.mutant)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Result:
        value = json.loads(line)
        return cls(**{**value, "mutant": Mutant(**value["mutant"])})


def load(path: Path) -> list[Result]:
    """One result a mutant, in the order of the sample."""
    found: dict[int, Result] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        later = Result.from_json(line)
        former = found.get(later.number)
        found[later.number] = later if former is None else former.with_more(later)
    return [found[number] for number in sorted(found)]


def table(results: list[Result], reasons: dict[str, str]) -> str:
    """In Markdown: how many were found by what; then each that was found by nothing. `reasons` tells, by
    `str(mutant)`, why one changes nothing."""
    equal = [each for each in results if not each.killed and str(each.mutant) in reasons]
    real = [each for each in results if each not in equal]
    text = (
        "| part | mutants | change nothing | found by the tests | found by the simulator | killed |\n"
        "|---|--:|--:|--:|--:|--:|\n"
    )
    for part in ("index/", "plugin/daemon/", ""):
        of = [each for each in real if each.mutant.path.startswith(part)]
        same = sum(each.mutant.path.startswith(part) for each in equal)
        tested = [each.test is not None for each in of if each.tested]
        hunted = [each.by_simulator for each in of if each.simulator is not None]
        text += (
            f"| {part or 'both'} | {len(of) + same} | {same} | {sum(tested)} of {len(tested)} "
            f"| {sum(hunted)} of {len(hunted)} | {sum(each.killed for each in of)} of {len(of)} |\n"
        )
    if equal:
        text += "\n| changes nothing | since |\n|---|---|\n"
        text += "".join(f"| {_cell(each)} | {reasons[str(each.mutant)]} |\n" for each in equal)
    alive = [each for each in real if not each.killed]
    if alive:
        text += "\nFound by nothing:\n\n" + "".join(f"- {_cell(each)}\n" for each in alive)
    return text


def _cell(result: Result) -> str:
    return str(result.mutant).replace("|", "\\|")
