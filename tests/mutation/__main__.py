"""`make mutation`: small faults in `index/` and `plugin/daemon/`, one after the other, and who finds them.

    python -m tests.mutation run --count 100            # goes on where it was ended
    python -m tests.mutation run --only 17 --hunt-s 600 # one of them again
    python -m tests.mutation run --by either            # the simulator only where the tests find nothing
    python -m tests.mutation list                       # the sample
    python -m tests.mutation report                     # the table of what is in results.jsonl

Exit codes: 0 done, 2 the command line makes no sense.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from tests.mutation import children
from tests.mutation.chosen_tests import stages
from tests.mutation.copies import Copy
from tests.mutation.mutants import Mutant, every_mutant, functions_of, sample
from tests.mutation.results import KEPT, REASONS, Result, load, table

ROOT = Path(__file__).parents[2]
_SLOWER = 20
"""A busy machine gives a process that much less than all of a core."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=("run", "list", "report"))
    parser.add_argument("--count", type=int, default=100, metavar="N", help="mutants in the sample (100)")
    parser.add_argument("--seed", type=int, default=42, help="of the sample (42)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="of the histories (1)")
    parser.add_argument(
        "--hunt-s", type=float, default=600, help="processor time of the simulator for each (600)"
    )
    parser.add_argument("--tests-s", type=float, default=120, help="of each file of tests (120)")
    parser.add_argument(
        "--hang-s", type=int, default=120, help="of the clock, after which one test counts as hanging (120)"
    )
    parser.add_argument(
        "--reach", type=int, default=30, metavar="N", help="histories that tell what runs (30)"
    )
    parser.add_argument(
        "--by",
        choices=("both", "either", "simulator", "tests"),
        default="both",
        help="who judges (both); either: the tests, and the simulator where they find nothing",
    )
    parser.add_argument(
        "--before", type=Path, metavar="FILE", help="JSON: the tests to ask before the nearest, by number"
    )
    parser.add_argument("--stages", type=int, default=4, metavar="N", help="of the tests, nearest first (4)")
    parser.add_argument("--only", type=int, nargs="*", help="these of the sample, even if there is a result")
    parser.add_argument("--part", default="0/1", metavar="N/OF", help="every OF-th from the N-th on (0/1)")
    parser.add_argument("--results", type=Path, default=KEPT, metavar="FILE", help="where they are kept")
    chosen = parser.parse_args(arguments)
    if chosen.count < 1:
        print("mutation: --count is 1 or more", file=sys.stderr)
        return 2
    if chosen.command == "report":
        reasons = json.loads(REASONS.read_text(encoding="utf-8")) if REASONS.exists() else {}
        print(table(load(chosen.results), reasons))
        return 0
    mutants = list(enumerate(sample(every_mutant(ROOT), chosen.count, chosen.seed)))
    if chosen.command == "list":
        for number, mutant in mutants:
            print(number, mutant)
        return 0
    at, of = (int(each) for each in chosen.part.split("/"))
    # The sample is another one once the code has changed.
    done = {(each.number, each.mutant) for each in load(chosen.results) if each.is_judged(chosen.by)}
    wanted = [
        (number, mutant)
        for number, mutant in mutants
        if (
            number in chosen.only
            if chosen.only is not None
            else number % of == at and (number, mutant) not in done
        )
    ]
    folder = Path(tempfile.mkdtemp(prefix="tidegate-mutation-"))
    try:
        children.load_libraries()
        _Run(Copy(ROOT, folder / "tree"), folder, chosen).run(wanted)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Run:
    def __init__(self, copy: Copy, folder: Path, chosen: argparse.Namespace) -> None:
        self._copy = copy
        self._log = folder / "log"
        self._chosen = chosen
        self._reached: set[tuple[str, int]] | None = None
        before = chosen.before
        self._before: dict[str, list[str]] = {} if before is None else json.loads(before.read_text("utf-8"))

    def run(self, wanted: list[tuple[int, Mutant]]) -> None:
        """Judge them one after the other, and keep each result at once."""
        by = self._chosen.by
        for number, mutant in wanted:
            result = Result(number, mutant)
            if by != "simulator":
                self._test(result)
            if by in ("both", "simulator") or (by == "either" and result.test is None):
                result.simulator = self._hunted(mutant)
            with self._chosen.results.open("a", encoding="utf-8") as file:
                file.write(result.to_json() + "\n")
            found = result.simulator and result.simulator["failure"]
            print(f"{number} {mutant}: simulator {found}, tests {result.test}", flush=True)

    def _hunted(self, mutant: Mutant) -> dict[str, Any]:
        found: dict[str, Any] = {"failure": None, "histories": 0, "steps": 0, "processor_s": 0.0}
        if not self._is_reached(mutant):
            return found
        limit_s = self._chosen.hunt_s
        try:
            with self._copy.mutated(mutant):
                told = self._call("hunt", (self._chosen.first, limit_s), limit_s + 100)
            return cast("dict[str, Any]", told)
        except children.ChildError as error:
            return {**found, "failure": str(error)}

    def _test(self, result: Result) -> None:
        """Ask the tests, stage by stage, until one fails that passes without the mutant."""
        began_s = _of_children_s()
        nearest = stages(ROOT, result.mutant)[: self._chosen.stages]
        for files in (self._before.get(str(result.number), []), *nearest):
            result.tested += len(files)
            left_out: list[str] = []
            while files and result.test is None:
                with self._copy.mutated(result.mutant):
                    failed = self._first_failure(files, left_out)
                if failed is None:
                    break
                without = [failed.removesuffix(" (collecting)")] if ".py" in failed else files
                if self._first_failure(without, left_out) != failed:
                    result.test = failed
                elif without is files:
                    break
                left_out.append(failed)
            if result.test is not None:
                break
        result.tests_s = round(_of_children_s() - began_s, 1)

    def _first_failure(self, tests: list[str], left_out: list[str]) -> str | None:
        limit_s = self._chosen.tests_s * len(tests)
        arguments = (str(self._copy.folder), tests, left_out, self._chosen.hang_s)
        try:
            return cast("str | None", self._call("run_tests", arguments, limit_s))
        except children.ChildError as error:
            return str(error)

    def _is_reached(self, mutant: Mutant) -> bool:
        """True if a history reaches its function. Code in no function runs as its module is imported."""
        if self._reached is None:
            arguments = (self._chosen.first, self._chosen.reach, str(self._copy.folder))
            self._reached = cast("set[tuple[str, int]]", self._call("reached", arguments, 600))
        source = (ROOT / mutant.path).read_bytes()
        lines = functions_of(source, mutant.line)
        return not lines or any((mutant.path, line) in self._reached for line in lines)

    def _call(self, judge: str, arguments: tuple[object, ...], processor_s: float) -> object:
        return children.call(
            self._copy,
            f"tests.mutation.judges:{judge}",
            arguments,
            processor_s=processor_s,
            elapsed_s=processor_s * _SLOWER,
            log=self._log,
        )


def _of_children_s() -> float:
    """Processor time of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
