"""Hunts: histories are chosen by what they come to, and each mutant meets them in rounds."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.children import ChildError
from tests.mutation.copies import Copy
from tests.mutation.former import UnknownCommitError, former_mutants, moved
from tests.mutation.hunts import NONE, Hunts
from tests.mutation.mutants import Mutant, every_mutant, mutants_of
from tests.mutation.probes import counts, probed, runs_on_import
from tests.mutation.reach import Reach, digest

SOURCE = b"""\
A = 3

class C:
    b = 4

    def f(self, a=5):
        if a > 1:
            self.b = [x + 1 for x in range(a)]
        elif a < 0:
            try:
                pass
            finally:
                self.c = (
                    a * 7
                )
        return self.b
"""


def of(old: str, source: bytes = SOURCE) -> Mutant:
    """The module's mutant of that text."""
    (found,) = [each for each in mutants_of("index/a.py", source) if each.old == old]
    return found


def test_a_probe_counts_how_often_the_statement_of_a_mutant_is_met() -> None:
    mutants = list(enumerate([of("a > 1"), of("+"), of("a < 0"), of("7")]))
    counts().clear()
    module: dict[str, Any] = {}
    exec(probed(SOURCE, mutants), module)  # noqa: S102 the text above

    for a in (2, 3, -1, 0):
        module["C"]().f(a)

    assert counts() == Counter({0: 4, 1: 2, 2: 2, 3: 1})
    counts().clear()


def test_what_runs_as_a_module_is_imported_has_no_probe() -> None:
    assert [runs_on_import(SOURCE, of(old)) for old in ("3", "4", "5", "7")] == [True, True, True, False]
    assert probed(SOURCE, [(0, of("4"))]) == probed(SOURCE, [])


def test_the_product_is_the_same_with_a_probe_for_each_mutant() -> None:
    path = Path(__file__).parents[2] / "index/state/positions.py"
    source = path.read_bytes()
    mutants = list(enumerate(mutants_of(str(path), source)))

    text = probed(source, mutants).decode()

    marks = text.count("_tidegate_probes")
    assert marks == sum(not runs_on_import(source, mutant) for _, mutant in mutants) > 0
    compile(text, str(path), "exec")


@pytest.mark.parametrize(
    ("today", "line"),
    [
        (b"# new\n" + SOURCE, 8),
        (SOURCE.replace(b"a > 1", b"a > 2"), 7),  # its line is another one
        (SOURCE.replace(b"self.b = [", b"self.d = ["), 7),
    ],
)
def test_a_former_mutant_moves_with_its_text(today: bytes, line: int) -> None:
    there = moved(of("a > 1"), SOURCE, today)

    if b"a > 2" in today:
        assert there is None
    else:
        assert there is not None
        assert there.line == line
        assert b"not (a > 1)" in there.applied(today)


def test_a_mutant_whose_line_has_changed_is_found_by_its_text_if_that_is_the_only_one() -> None:
    today = SOURCE.replace(b"        if a > 1:", b"        if b or a > 1:")
    there = moved(of("a > 1"), SOURCE, today)

    assert there is not None
    assert b"if b or not (a > 1):" in there.applied(today)
    assert moved(of("a > 1"), SOURCE, today + b"# a > 1\n") is None


def test_the_mutants_of_a_commit_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "index" / "b").mkdir(parents=True)
    (tmp_path / "plugin/daemon").mkdir(parents=True)
    for name in ("index/b_c.py", "index/b/d.py", "plugin/daemon/a.py"):
        (tmp_path / name).write_bytes(SOURCE)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    then = every_mutant(tmp_path)
    (tmp_path / "index/b_c.py").write_bytes(b"x = 1\n")

    assert former_mutants(tmp_path, "HEAD") == then != every_mutant(tmp_path)
    with pytest.raises(UnknownCommitError, match="deadbeef"):
        former_mutants(tmp_path, "deadbeef")


def history(seed: int, met: dict[str, int], failure: str | None = None, s: float = 1.0) -> dict[str, Any]:
    """An answer of `judges.reached`."""
    return {"seed": seed, "processor_s": s, "failure": failure, "met": met}


def test_processes_share_histories_and_each_takes_what_the_others_leave(tmp_path: Path) -> None:
    path = tmp_path / "reach.jsonl"
    ours, theirs = Reach(path, first=1), Reach(path, first=1)

    assert ours.missing(25, 0, 2) == list(range(1, 11))
    assert theirs.missing(25, 1, 2) == list(range(11, 21))
    ours.add(history(seed, {}) for seed in (*range(1, 11), *range(21, 26)))
    assert ours.missing(25, 0, 2) == list(range(11, 21))
    theirs.load()
    theirs.add(history(seed, {}) for seed in range(11, 21))
    ours.load()
    assert ours.missing(25, 0, 2) == []


class Judges:
    """Answer as `judges` do, with histories that fail where they are told to."""

    def __init__(self, histories: list[dict[str, Any]], failing: int | None = None) -> None:
        self.histories = {each["seed"]: each for each in histories}
        self.failing = failing
        self.hunted: list[int] = []
        self.never_answers = False

    def __call__(self, judge: str, arguments: tuple[Any, ...], processor_s: float) -> object:
        if judge == "reached_by":
            return [self.histories[seed] for seed in arguments[0]]
        if self.never_answers:
            raise ChildError("it did not end")
        answer: dict[str, Any] = {**NONE, "processor_s": 0.0}
        del answer["histories"], answer["stands_for_s"]
        for seed in arguments[0]:
            self.hunted.append(seed)
            answer |= {"played": answer["played"] + 1, "processor_s": answer["processor_s"] + 2.0}
            if seed == self.failing:
                return {**answer, "failure": "lost", "seed": seed}
        return answer


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    tree = tmp_path / "tree"
    for name in ("index", "plugin/jars", "pipeline", "door", "tests"):
        (tree / name).mkdir(parents=True)
    (tree / "index/a.py").write_bytes(SOURCE)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    return Copy(tree, tmp_path / "copy")


HISTORIES = [
    history(1, {"0": 1}),
    history(2, {}),
    history(3, {"0": 9}),
    history(4, {"0": 99}, failure="it fails without a mutant, too"),
    history(5, {"0": 2}),
]


def hunts(copy: Copy, judges: Judges) -> Hunts:
    """Of two mutants: 0 in a function, 1 of a module; all histories are known."""
    mutants = [(0, of("a > 1")), (1, of("3"))]
    reach = Reach(copy.folder / "reach.jsonl", first=1)
    found = Hunts(copy, mutants, reach, (0, 1), judges)
    found.learn(5, lambda _: None)
    assert (copy.folder / "index/a.py").read_bytes() == SOURCE
    return found


def test_the_histories_that_come_to_a_mutant_most_often_are_played_and_no_other(copy: Copy) -> None:
    judges = Judges(HISTORIES)
    found = hunts(copy, judges).hunt(0, of("a > 1"), dict(NONE), 5)

    assert judges.hunted == [3, 5, 1]
    assert found["failure"] is None
    assert (found["histories"], found["played"], found["stands_for_s"]) == (5, 3, 5.0)


def test_a_later_round_goes_on_after_the_former(copy: Copy) -> None:
    judges = Judges(HISTORIES, failing=3)
    of_all = hunts(copy, judges)
    first = of_all.hunt(0, of("a > 1"), dict(NONE), 2)

    assert judges.hunted == [1]
    assert of_all.price_s(0, first, 5) == 2.0
    second = of_all.hunt(0, of("a > 1"), first, 5)

    assert judges.hunted == [1, 3]
    assert (second["failure"], second["seed"], second["played"]) == ("lost", 3, 2)
    assert second["processor_s"] == 4.0


def test_a_mutant_of_a_modules_own_code_meets_every_history(copy: Copy) -> None:
    judges = Judges(HISTORIES)
    hunts(copy, judges).hunt(1, of("3"), dict(NONE), 5)

    assert judges.hunted == [1, 2, 3, 5]


def test_a_mutant_that_hangs_is_found(copy: Copy) -> None:
    judges = Judges(HISTORIES)
    judges.never_answers = True

    assert hunts(copy, judges).hunt(0, of("a > 1"), dict(NONE), 5)["failure"] == "it did not end"


def test_a_hunt_that_takes_too_long_counts_for_what_it_took(copy: Copy) -> None:
    class Slow(Judges):
        def __call__(self, judge: str, arguments: tuple[Any, ...], processor_s: float) -> object:
            return super().__call__(judge, (arguments[0][:1] if judge == "hunt" else arguments[0],), 0)

    found = hunts(copy, Slow(HISTORIES)).hunt(0, of("a > 1"), dict(NONE), 5)

    assert (found["played"], found["stands_for_s"]) == (1, 2.0)


def test_another_simulator_or_sample_has_a_reach_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tests/sim").mkdir(parents=True)
    (tmp_path / "tests/sim/a.py").write_text("a")
    one = digest(tmp_path, [(0, of("3"))])

    assert digest(tmp_path, [(1, of("3"))]) != one
    (tmp_path / "tests/sim/a.py").write_text("b")
    assert digest(tmp_path, [(0, of("3"))]) != one
