"""The verdict on each mutant, a line of JSON each, and the table of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant

KEPT = Path(__file__).parent / "results.jsonl"
REASONS = Path(__file__).parent / "unchanged.json"


@dataclass
class Result:
    """`number`: its place in the sample. `simulator`: see `hunts`; None if not asked. `test`: the first that
    failed, None if none did. `tested`: files or tests asked, 0 if none; `tests_s`: their processor time in
    seconds.
    """

    number: int
    mutant: Mutant
    simulator: dict[str, Any] | None = None
    test: str | None = None
    tested: int = 0
    tests_s: float = 0.0

    @property
    def by_simulator(self) -> bool:
        """True if the simulator has found it."""
        return self.simulator is not None and self.simulator["failure"] is not None

    @property
    def killed(self) -> bool:
        """True if anything has."""
        return self.by_simulator or self.test is not None

    def is_tested(self) -> bool:
        """True if nothing is left to ask of the tests."""
        return self.tested > 0

    def is_hunted(self, histories: int) -> bool:
        """True if the simulator has found it, or was asked about so many histories."""
        return self.simulator is not None and (self.by_simulator or self.simulator["histories"] >= histories)

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
            later.tests_s if later.tested else self.tests_s,
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
    text += f"\n{_asked(results)}\n"
    if equal:
        text += "\n| changes nothing | since |\n|---|---|\n"
        text += "".join(f"| {_cell(each)} | {reasons[str(each.mutant)]} |\n" for each in equal)
    alive = [each for each in real if not each.killed]
    if alive:
        text += "\nFound by nothing:\n\n" + "".join(f"- {_cell(each)}\n" for each in alive)
    passed = [each for each in real if each.simulator is not None and not each.by_simulator]
    if passed:
        text += "\nNot found by the simulator:\n\n"
        text += "".join(f"- {each.number} {_cell(each)}: {_reach(each)}\n" for each in passed)
    return text


def _reach(result: Result) -> str:
    hunt = result.simulator
    assert hunt is not None
    if not hunt["played"]:
        return f"no history of {hunt['histories']} comes to it"
    return f"passed {hunt['played']} of {hunt['histories']} histories"


def _asked(results: list[Result]) -> str:
    """How each judge was asked, in a line."""
    tested = [each for each in results if each.tested]
    used_s = sum(each.tests_s for each in tested)
    text = f"Asked: the tests, about {len(tested)}, {used_s:.0f} s of processor time"
    hunts = [each.simulator for each in results if each.simulator is not None]
    if not hunts:
        return f"{text}; not the simulator."
    passed = [each for each in hunts if each["failure"] is None]
    unreached = sum(not each["played"] for each in passed)
    text += f"; the simulator, about {len(hunts)}, {sum(each['processor_s'] for each in hunts):.0f} s"
    for histories, number in sorted(Counter(each["histories"] for each in passed).items()):
        budget_s = max(each["stands_for_s"] for each in passed if each["histories"] == histories)
        text += f"; {number} passed {histories} histories ({budget_s:.0f} s)"
    return f"{text}; of these none comes to {unreached}."


def _cell(result: Result) -> str:
    return str(result.mutant).replace("|", "\\|")
