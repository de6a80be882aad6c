"""Mutants of small texts: which there are, which are omitted, and that each compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutation.chosen_tests import stages
from tests.mutation.mutants import Mutant, every_mutant, mutants_of, sample
from tests.mutation.results import Result, load, table

ROOT = Path(__file__).parents[2]


def texts(source: str) -> list[str]:
    """The module's text with each of its mutants."""
    return [mutant.applied(source.encode()).decode() for mutant in mutants_of("a.py", source.encode())]


@pytest.mark.parametrize(
    ("source", "mutated"),
    [
        ("def f():\n    g()\n", ["def f():\n    pass\n"]),
        ("def f(a):\n    a.b = c\n", ["def f(a):\n    pass\n"]),
        ("def f():\n    return (a) < (b)\n", ["def f():\n    return (a) <= (b)\n"]),
        ("x = a not in b\n", ["x = a in b\n"]),
        ("x = a and b\n", ["x = a or b\n"]),
        ("def f():\n    if a(b):\n        return 1\n", None),
        ("x = f(not a)\n", ["x = f(bool(a))\n"]),
        ("x = 'ü' if a else (b)\n", ["x = 'ü' if not (a) else (b)\n"]),
        ("def f():\n    x = a | b\n", ["def f():\n    x = a & b\n"]),
        (
            "def f():\n    x = a << b // c\n",
            ["def f():\n    x = a >> b // c\n", "def f():\n    x = a << b * c\n"],
        ),
        ("x = min(a, b)\n", ["x = max(a, b)\n"]),
        ("x = 7\ny = True\n", ["x = (7 + 1)\ny = True\n", "x = 7\ny = False\n"]),
    ],
)
def test_a_text_has_these_mutants(source: str, mutated: list[str] | None) -> None:
    found = texts(source)

    if mutated is None:
        assert any("not (a(b))" in text for text in found)
    else:
        assert sorted(found) == sorted(mutated)


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: int | None) -> int | str: ...\n",
        "A = int | str\n",
        "def f():\n    _LOG.warning('a', b + 1)\n",
        "def f():\n    raise E(a + 1)\n",
        "x = f'{a + 1}'\n",
        "class C:\n    def check(self):\n        g()\n",
        "if TYPE_CHECKING:\n    x = 1\n",
        "assert a < b\n",
        "match x:\n    case 1:\n        y = z\n",
    ],
)
def test_what_is_no_fault_of_the_product_is_left_out(source: str) -> None:
    assert texts(source) == []


def test_each_mutant_of_a_sample_compiles_and_is_one_change() -> None:
    mutants = sample(every_mutant(ROOT), 300, seed=7)

    for mutant in mutants:
        source = (ROOT / mutant.path).read_bytes()
        mutated = mutant.applied(source)
        compile(mutated, mutant.path, "exec")
        assert mutated != source


def test_a_sample_has_its_part_of_every_module_and_is_the_same_each_time() -> None:
    mutants = every_mutant(ROOT)
    chosen = sample(mutants, 500, seed=3)

    assert chosen == sample(mutants, 500, seed=3)
    assert chosen != sample(mutants, 500, seed=4)
    for part in ("index/", "plugin/daemon/"):
        of_all = sum(each.path.startswith(part) for each in mutants) / len(mutants)
        of_chosen = sum(each.path.startswith(part) for each in chosen) / len(chosen)
        assert of_chosen == pytest.approx(of_all, abs=0.01)


def test_a_mutant_of_another_text_is_refused() -> None:
    (mutant,) = mutants_of("a.py", b"x = min(a, b)\n")

    with pytest.raises(ValueError, match="has changed"):
        mutant.applied(b"xyz = min(a, b)\n")


def test_the_tests_of_a_module_come_first_and_the_simulator_never() -> None:
    mutant = Mutant("index/journal/journal.py", 1, 0, 0, "constant", "1", "0")
    found = stages(ROOT, mutant)

    assert found[0] == ["tests/index/test_journal.py"]
    assert "tests/index/test_catalog.py" in [*found[1], *found[2]]
    files = [name for stage in found for name in stage]
    assert len(files) == len(set(files))
    assert not any(name.startswith("tests/sim/") for name in files)


def hunted(failure: str | None, histories: int = 150, played: int = 3) -> dict[str, Any]:
    """A hunt's answer."""
    return {
        **{"failure": failure, "seed": None, "histories": histories, "played": played},
        **{"steps": 9, "processor_s": 1.0, "stands_for_s": 40.0},
    }


def test_the_table_counts_who_has_found_what(tmp_path: Path) -> None:
    mutants = [Mutant("index/a.py", line, 0, 1, "constant", "1", "0") for line in range(5)]
    results = [
        Result(0, mutants[0], hunted("lost"), "test_a", 1),
        Result(1, mutants[1], hunted(None), "test_a", 1),
        Result(2, mutants[2], None, None, 9),
        Result(3, mutants[3], None, None, 9),
        Result(4, mutants[4], hunted(None, played=0), "test_b", 1),
    ]
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(each.to_json() for each in reversed(results)), encoding="utf-8")

    assert load(path) == results
    text = table(load(path), {str(mutants[2]): "it is a text"})

    assert "| index/ | 5 | 1 | 3 of 4 | 1 of 3 | 3 of 4 |" in text
    assert "about 3, 3 s; 2 passed 150 histories (40 s); of these none comes to 1." in text
    assert text.index("it is a text") < text.index("Found by nothing") < text.index(f"- {mutants[3]}")
    assert f"- 1 {mutants[1]}: passed 3 of 150 histories" in text
    assert f"- 4 {mutants[4]}: no history of 150 comes to it" in text


def test_a_mutant_is_judged_when_each_judge_was_asked(tmp_path: Path) -> None:
    mutant = Mutant("index/a.py", 1, 0, 1, "constant", "1", "0")
    passed = Result(5, mutant, hunted(None))
    tested = Result(5, mutant, test="test_a", tested=2, tests_s=3.0)
    path = tmp_path / "results.jsonl"
    path.write_text(f"{passed.to_json()}\n{tested.to_json()}\n", encoding="utf-8")

    assert not passed.is_tested()
    assert not tested.is_hunted(150)
    (both,) = load(path)
    assert both.is_tested()
    assert both.is_hunted(150)
    assert not both.is_hunted(151)
    assert both.killed
    assert not both.by_simulator
    assert both.with_more(Result(5, mutant, hunted("lost"))).is_hunted(151)
