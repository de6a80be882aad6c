"""Judges of a mutant, in a process of their own: the simulator, and pytest. Answers are plain values."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

_HISTORY_S = 60.0
"""Processor time after which a history counts as one that does not end: others take a second or two."""


class _EndlessError(BaseException):
    """Not an Exception: nothing that is simulated may catch it."""


def hunt(first_seed: int, processor_s: float) -> dict[str, Any]:
    """Play new histories until one fails or so much processor time is used; what failed and when."""
    began_s = time.process_time()
    steps = 0
    signal.signal(signal.SIGVTALRM, _too_long)
    seed = first_seed
    failure: str | None = None
    try:
        from tests.sim.generator import generate  # noqa: PLC0415 the copy's, once there is one
        from tests.sim.player import play  # noqa: PLC0415 the copy's, once there is one

        while failure is None and time.process_time() - began_s < processor_s:
            signal.setitimer(signal.ITIMER_VIRTUAL, _HISTORY_S)
            outcome = play(generate(seed))
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            steps += outcome.steps
            failure = outcome.failure
            seed += 1
    except _EndlessError:
        failure = "a history does not end"
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"
    used_s = round(time.process_time() - began_s, 1)
    return {"failure": _line(failure), "histories": seed - first_seed, "steps": steps, "processor_s": used_s}


def run_tests(folder: str, tests: list[str], left_out: list[str], hang_s: int) -> str | None:
    """The first of these tests that fails, None if all pass. `tests`: files or tests, without those left out;
    `hang_s`: seconds of the clock after which a test has failed."""
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


def reached(first_seed: int, count: int, folder: str) -> set[tuple[str, int]]:
    """Functions that a few histories call: path, and the line of the function's code."""
    from tests.sim.generator import generate  # noqa: PLC0415 the copy's, once there is one
    from tests.sim.player import play  # noqa: PLC0415 the copy's, once there is one

    found: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    sys.settrace(trace)
    try:
        for seed in range(first_seed, first_seed + count):
            play(generate(seed))
    finally:
        sys.settrace(None)
    root = Path(folder).resolve()
    paths = {name: Path(name).resolve() for name, _ in found}
    return {
        (str(paths[name].relative_to(root)), line) for name, line in found if paths[name].is_relative_to(root)
    }


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
