"""The loop of virtual time: somebody looks at each failure, or it is a bug."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sim.clocks import MachineClock
from tests.sim.kernel import NS_PER_S, BrokenSimulation, Kernel, Process
from tests.sim.loop import VirtualLoop
from tidegate.index.errors import StorageError


class Watched:
    """A loop, and what it calls a bug."""

    def __init__(self) -> None:
        self.kernel = Kernel(1)
        self.bugs: list[str] = []
        self.loop = VirtualLoop(  # type: ignore[abstract]
            self.kernel,
            Process("daemon"),
            MachineClock(self.kernel),
            lambda bug: self.bugs.append(str(bug)),
            0,
        )

    def run(self, seconds: int) -> None:
        """Let that time pass, in which the loop has a turn each second."""
        for second in range(1, seconds + 1):
            self.loop.call_later(second, lambda: None)
        self.kernel.run_until(self.kernel.now_ns + (seconds + 1) * NS_PER_S)


@pytest.mark.parametrize("asks", [False, True])
def test_a_future_that_fails_must_be_asked_for_its_outcome(asks: bool) -> None:
    watched = Watched()
    future = watched.loop.create_future()

    watched.loop.call_soon(future.set_exception, StorageError("no space left on device"))
    if asks:
        watched.loop.call_later(5, future.exception)
    watched.run(40)

    assert [("nobody has asked" in bug and "no space left" in bug) for bug in watched.bugs] == [True] * (
        not asks
    )


@pytest.mark.parametrize("asks", [False, True])
def test_a_task_that_fails_must_be_asked_for_its_outcome(asks: bool) -> None:
    async def write() -> None:
        raise StorageError("no space left on device")

    watched = Watched()
    task = watched.loop.create_task(write())
    if asks:
        task.add_done_callback(lambda done: done.exception())
    watched.run(40)

    assert [("nobody has asked" in bug and "no space left" in bug) for bug in watched.bugs] == [True] * (
        not asks
    )


def test_work_for_a_thread_that_nobody_simulates_breaks_the_simulation() -> None:
    watched = Watched()

    with ThreadPoolExecutor(1) as threads, pytest.raises(BrokenSimulation, match="beside the simulation"):
        watched.loop.run_in_executor(threads, lambda: None)


def test_what_a_destructor_tells_the_loop_is_a_bug_at_its_next_turn() -> None:
    watched = Watched()

    watched.loop.call_exception_handler({"message": "Task was destroyed but it is pending!"})
    watched.run(1)

    assert watched.bugs == ["Task was destroyed but it is pending!"]
