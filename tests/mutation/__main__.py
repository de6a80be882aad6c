"""`make mutation`: small faults in `index/` and `plugin/daemon/`, one at a time, and the judges that find
them.

    python -m tests.mutation run --count 100            # continues where it ended
    python -m tests.mutation run --only 17              # one of them again
    python -m tests.mutation run --by either            # the simulator only where the tests find nothing
    python -m tests.mutation run --of f0225ec7          # that commit's sample, in today's text
    python -m tests.mutation list                       # the sample
    python -m tests.mutation report                     # the table of results.jsonl

Exit codes: 0 done, 2 a senseless command line.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, cast

from tests.mutation import children
from tests.mutation.chosen_tests import stages
from tests.mutation.copies import Copy
from tests.mutation.former import UnknownCommitError, former_mutants, former_source, moved
from tests.mutation.hunts import NONE, Hunts, reach_file
from tests.mutation.mutants import Mutant, every_mutant, sample
from tests.mutation.reach import Reach, digest
from tests.mutation.results import KEPT, REASONS, Result, load, table

ROOT = Path(__file__).parents[2]
_SLOWER = 100
"""A busy machine gives a nice process that much less than all of a core."""


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
        "--histories",
        type=int,
        nargs="*",
        default=[150, 600, 2_400],
        metavar="N",
        help="of each round of the simulator (150 600 2400, some 40, 150 and 600 s)",
    )
    parser.add_argument("--of", metavar="COMMIT", help="whose sample it is (today's files)")
    parser.add_argument("--afresh", action="store_true", help="histories that a mutant passed, again")
    parser.add_argument("--tests-s", type=float, default=120, help="of each file of tests (120)")
    parser.add_argument(
        "--hang-s", type=int, default=120, help="of the clock, after which one test counts as hanging (120)"
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
    try:
        former = every_mutant(ROOT) if chosen.of is None else former_mutants(ROOT, chosen.of)
    except UnknownCommitError as error:
        print(f"mutation: no sample of {chosen.of}: {error}; name a commit that git has", file=sys.stderr)
        return 2
    mutants = list(enumerate(sample(former, chosen.count, chosen.seed)))
    if chosen.command == "list":
        for number, mutant in mutants:
            print(number, mutant)
        return 0
    folder = Path(tempfile.mkdtemp(prefix="tidegate-mutation-"))
    try:
        children.load_libraries()
        _Run(Copy(ROOT, folder / "tree"), folder, chosen, mutants).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Run:
    def __init__(
        self, copy: Copy, folder: Path, chosen: argparse.Namespace, sampled: list[tuple[int, Mutant]]
    ) -> None:
        self._copy = copy
        self._log = folder / "log"
        self._chosen = chosen
        self._today = self._in_todays_text(sampled)
        # The sample is another one once the code has changed.
        kept = {(each.number, each.mutant): each for each in load(chosen.results)}
        self._results = {
            number: kept.get((number, mutant), Result(number, mutant)) for number, mutant in sampled
        }
        self._part = cast("tuple[int, int]", tuple(int(each) for each in chosen.part.split("/")))
        before = chosen.before
        self._before: dict[str, list[str]] = {} if before is None else json.loads(before.read_text("utf-8"))

    def run(self) -> None:
        """Judge them one after the other, and keep each result at once."""
        by, only = self._chosen.by, self._chosen.only
        at, of = self._part
        mine = [number for number in self._today if number % of == at]
        mine = [number for number in self._today if number in only] if only is not None else mine
        if by != "simulator":
            for number in mine:
                if only is not None or not self._results[number].is_tested():
                    self._test(self._results[number])
                    self._keep(number)
        if by != "tests":
            self._hunt_in_rounds(mine)

    def _hunt_in_rounds(self, mine: list[int]) -> None:
        wanted = [
            number for number in mine if self._chosen.by != "either" or self._results[number].test is None
        ]
        for number in wanted:
            result = self._results[number]
            again = self._chosen.only is not None or (self._chosen.afresh and not result.by_simulator)
            if result.simulator is None or again:
                result.simulator = dict(NONE)
        reach = Reach(reach_file(ROOT, digest(ROOT, self._today.items())), self._chosen.first)
        hunts = Hunts(self._copy, list(self._today.items()), reach, self._part, self._call)
        for histories in sorted(self._chosen.histories):
            left = [number for number in wanted if not self._results[number].is_hunted(histories)]
            if not left:
                continue
            hunts.learn(histories, partial(print, flush=True))
            prices = [(hunts.price_s(each, self._hunted(each), histories), each) for each in left]
            for _, number in sorted(prices):
                former = self._hunted(number)
                self._results[number].simulator = hunts.hunt(number, self._today[number], former, histories)
                self._keep(number)

    def _hunted(self, number: int) -> dict[str, Any]:
        found = self._results[number].simulator
        assert found is not None
        return found

    def _keep(self, number: int) -> None:
        result = self._results[number]
        with self._chosen.results.open("a", encoding="utf-8") as file:
            file.write(result.to_json() + "\n")
        hunt = result.simulator
        said = "not asked" if hunt is None else hunt["failure"] or f"nothing in {hunt['histories']} histories"
        print(f"{number} {result.mutant}: simulator {said}, tests {result.test}", flush=True)

    def _in_todays_text(self, sampled: list[tuple[int, Mutant]]) -> dict[int, Mutant]:
        commit = self._chosen.of
        if commit is None:
            return dict(sampled)
        found = {}
        for number, mutant in sampled:
            today = ROOT / mutant.path
            source = former_source(ROOT, commit, mutant.path)
            there = moved(mutant, source, today.read_bytes()) if today.exists() else None
            if there is None:
                print(f"{number} {mutant}: its text has changed since", flush=True)
            else:
                found[number] = there
        return found

    def _test(self, result: Result) -> None:
        """Ask the tests, stage by stage, until one fails that passes without the mutant."""
        mutant = self._today[result.number]
        result.test, result.tested = None, 0
        began_s = _of_children_s()
        nearest = stages(ROOT, mutant)[: self._chosen.stages]
        for files in (self._before.get(str(result.number), []), *nearest):
            result.tested += len(files)
            left_out: list[str] = []
            while files and result.test is None:
                with self._copy.mutated(mutant):
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
