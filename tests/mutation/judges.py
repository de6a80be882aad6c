"""Judges of a mutant, in a process of their own: the simulator, and pytest. Answers are plain values."""

from __future__ import annotations

import resource
import signal
import time
from types import FrameType
from typing import Any

from tests.mutation.probes import counts

_HISTORY_S = 60.0
"""Processor time after which a history counts as one that does not end: others take a second or two."""


_MEMORY_BYTES = 4 << 30
"""A mutant may ask for any amount: more is refused, so that only the mutant suffers."""


class _EndlessError(BaseException):
    """Not an Exception: nothing that is simulated may catch it."""


def hunt(seeds: list[int], processor_s: float) -> dict[str, Any]:
    """Play these histories until one fails or so much processor time is used; what failed and when."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGVTALRM, _too_long)
    began_s = time.process_time()
    steps = played = 0
    seed: int | None = None
    failure: str | None = None
    try:
        from tests.sim.generator import generate  # noqa: PLC0415 the copy's, once there is one
        from tests.sim.player import play  # noqa: PLC0415 the copy's, once there is one

        for seed in seeds:
            signal.setitimer(signal.ITIMER_VIRTUAL, _HISTORY_S)
            outcome = play(generate(seed))
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            steps += outcome.steps
            played += 1
            failure = outcome.failure
            if failure is not None or time.process_time() - began_s > processor_s:
                break
    except _EndlessError:
        failure = "a history does not end"
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"
    used_s = round(time.process_time() - began_s, 1)
    found_by = seed if failure is not None else None
    return {
        "failure": _line(failure),
        "seed": found_by,
        "played": played,
        "steps": steps,
        "processor_s": used_s,
    }


def reached(seed: int) -> dict[str, Any]:
    """Play a history of a copy with `probes`: how often it comes to each of them, and its processor time."""
    from tests.sim.generator import generate  # noqa: PLC0415 the copy's, once there is one
    from tests.sim.player import play  # noqa: PLC0415 the copy's, once there is one

    marks = counts()
    began_s = time.process_time()
    outcome = play(generate(seed))
    used_s = round(time.process_time() - began_s, 3)
    met = {str(number): count for number, count in sorted(marks.items())}
    marks.clear()
    return {"seed": seed, "processor_s": used_s, "failure": _line(outcome.failure), "met": met}


def reached_by(seeds: list[int]) -> list[dict[str, Any]]:
    """`reached` of each."""
    counts()
    return [reached(seed) for seed in seeds]


def run_tests(folder: str, tests: list[str], left_out: list[str], hang_s: int) -> str | None:
    """The first of these tests that fails, None if all pass. `tests`: files or tests, without those left out;
    `hang_s`: by the clock, after which a test has failed.
    """
    import pytest  # noqa: PLC0415 not for the simulator

    first = _FirstFailure()
    arguments = [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",  # libraries are loaded already
        "-x",
        "-q",
        "-m",
        "not broker",
        "-p",
        "no:cacheprovider",
        "-o",
        f"timeout={hang_s}",
        *(f"--deselect={name}" for name in left_out),
        "--rootdir",
        folder,
    ]
    code = pytest.main([*arguments, "-c", f"{folder}/pyproject.toml", *tests], plugins=[first])
    if first.name is None and code not in (0, 5):
        return f"pytest ends with {int(code)}"
    return first.name


class _FirstFailure:
    name: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.name is None:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.name is None:
            self.name = f"{report.nodeid} (collecting)"


def _too_long(number: int, frame: FrameType | None) -> None:
    raise _EndlessError


def _line(failure: str | None) -> str | None:
    return None if failure is None else " ".join(failure.split())[:160]
