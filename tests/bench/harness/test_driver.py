"""Flags of a bench reach it, or are refused."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.harness import driver
from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.results import Result


def sizes(plan: Plan, recorder: Recorder) -> None:
    """A bench that does nothing but say what it was asked for."""
    recorder.parameters["sizes"] = ", ".join(map(str, plan.entries)) or "its own"


BENCH = Bench(
    "sizes",
    "nothing",
    "no time",
    "no time",
    ("tidegate",),
    1,
    1,
    sizes,
    uses_pulsar=False,
    takes_entries=True,
)


def run(bench: Bench, *entries: int) -> Result:
    return driver.run(
        bench,
        quick=True,
        runs=None,
        only=[],
        console=Console(file=io.StringIO()),
        command="",
        entries=entries,
    )


@pytest.mark.parametrize(("entries", "told"), [((), "its own"), ((5,), "5"), ((5, 7), "5, 7")])
def test_a_bench_is_told_the_sizes(entries: tuple[int, ...], told: str) -> None:
    assert run(BENCH, *entries).parameters == {"sizes": told}


def test_a_bench_with_sizes_of_its_own_alone_takes_no_others() -> None:
    with pytest.raises(BenchError, match="leave out --entries"):
        run(replace(BENCH, takes_entries=False), 5)
