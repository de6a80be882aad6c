"""The simulator as a judge, in rounds: few histories for each mutant, then more for those that passed.

A hunt's answer: `failure` and its `seed`, both None if nothing found it; `histories`, how many of the first
were asked about; `played`, those that come to the mutant; `steps` and `processor_s` of these; `stands_for_s`,
the processor time of all of them without the mutant.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tests.mutation.children import ChildError
from tests.mutation.copies import Copy
from tests.mutation.mutants import Mutant
from tests.mutation.probes import probed, runs_on_import
from tests.mutation.reach import History, Reach, ranked

_SLOWER = 5
_MORE_S = 30.0
NONE: dict[str, Any] = {
    **{"failure": None, "seed": None, "histories": 0, "played": 0},
    **{"steps": 0, "processor_s": 0.0, "stands_for_s": 0.0},
}

Call = Callable[[str, tuple[object, ...], float], object]
"""Calls a judge by its name: its arguments, and the processor time that it may take, in seconds."""


class Hunts:
    """Hunts for mutants, numbered, in a copy. `part`: which part of the seeds this process plays first, and
    how many parts there are."""

    def __init__(
        self, copy: Copy, mutants: list[tuple[int, Mutant]], reach: Reach, part: tuple[int, int], call: Call
    ) -> None:
        self._copy = copy
        self._mutants = mutants
        self._reach = reach
        self._part = part
        self._call = call
        sources = self._sources()
        self._everywhere = {number for number, each in mutants if runs_on_import(sources[each.path], each)}

    def learn(self, histories: int, say: Callable[[str], None]) -> None:
        """Play so many histories without a mutant, to know which ones come to what."""
        self._reach.load()
        with self._copy.rewritten(self._probed()):
            while seeds := self._reach.missing(histories, *self._part):
                limit_s = 60.0 * len(seeds)
                self._reach.add(cast("list[dict[str, Any]]", self._call("reached_by", (seeds,), limit_s)))
                self._reach.load()
                say(f"reach: seed {seeds[-1]}")

    def price_s(self, number: int, former: dict[str, Any], histories: int) -> float:
        """Processor time of a mutant's remaining histories."""
        return sum(each.processor_s for each in self._left(number, former, histories))

    def hunt(self, number: int, mutant: Mutant, former: dict[str, Any], histories: int) -> dict[str, Any]:
        """Play what `former` leaves of the first so many histories, until one fails; both answers as one."""
        left = self._left(number, former, histories)
        answer = dict(NONE)
        if left:
            limit_s = _MORE_S + _SLOWER * sum(each.processor_s for each in left)
            arguments = ([each.seed for each in left], limit_s)
            try:
                with self._copy.mutated(mutant):
                    told = self._call("hunt", arguments, limit_s + 2 * _MORE_S)
                answer |= cast("dict[str, Any]", told)
            except ChildError as error:
                answer["failure"] = str(error)
        asked = self._reach.histories(former["histories"], histories)
        is_cut = answer["failure"] is None and answer["played"] < len(left)
        stands_s = answer["processor_s"] if is_cut else sum(each.processor_s for each in asked)
        return {
            **answer,
            "histories": histories,
            "played": former["played"] + answer["played"],
            "steps": former["steps"] + answer["steps"],
            "processor_s": round(former["processor_s"] + answer["processor_s"], 1),
            "stands_for_s": round(former["stands_for_s"] + stands_s, 1),
        }

    def _left(self, number: int, former: dict[str, Any], histories: int) -> list[History]:
        asked = self._reach.histories(former["histories"], histories)
        return ranked(asked, None if number in self._everywhere else number)

    def _sources(self) -> dict[str, bytes]:
        return {path: (self._copy.folder / path).read_bytes() for path in {m.path for _, m in self._mutants}}

    def _probed(self) -> dict[str, bytes]:
        return {
            path: probed(source, [each for each in self._mutants if each[1].path == path])
            for path, source in self._sources().items()
        }


def reach_file(root: Path, digest: str) -> Path:
    """Where the reach of a tree and a sample is kept: git ignores it."""
    return root / "build" / "mutation" / f"reach-{digest}.jsonl"
