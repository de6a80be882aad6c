"""Waiting for a turn, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.sim.clocks import MachineClock
from tests.sim.kernel import NS_PER_S, Kernel, Process
from tests.sim.loop import VirtualLoop
from tidegate.plugin.daemon.index_logs.turns import Turns

PATIENCE_S = 8.0


class Queue:
    """Those that ask for a turn in an order, one second each if nothing else is said."""

    def __init__(self, at_once: int) -> None:
        self.kernel = Kernel(1)
        self.bugs: list[str] = []
        self.loop = VirtualLoop(  # type: ignore[abstract]
            self.kernel,
            Process("daemon"),
            MachineClock(self.kernel),
            lambda bug: self.bugs.append(str(bug)),
            0,
        )
        self.turns = Turns(at_once, PATIENCE_S)
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.gave_up: list[int] = []
        self.at_once = 0

    def ask(
        self, number: int, takes_s: float = 1.0, fails: Callable[[], None] = lambda: None
    ) -> asyncio.Task[None]:
        async def have_a_turn() -> None:
            try:
                async with self.turns:
                    self.begun.append(number)
                    self.at_once = max(self.at_once, len(self.begun) - len(self.ended))
                    try:
                        await asyncio.sleep(takes_s)
                        fails()
                    finally:
                        self.ended.append(number)
            except TimeoutError:
                self.gave_up.append(number)

        return self.loop.create_task(have_a_turn())

    def run(self, seconds: int = 100) -> None:
        self.kernel.run_until(self.kernel.now_ns + seconds * NS_PER_S)
        assert not self.bugs


def nothing_done() -> None:
    raise TimeoutError


@pytest.mark.parametrize("at_once", [1, 3])
def test_turns_come_in_order_and_few_at_a_time(at_once: int) -> None:
    queue = Queue(at_once)
    for number in range(10):
        queue.ask(number)
    queue.run()
    assert queue.begun == queue.ended == list(range(10))
    assert queue.at_once == at_once
    assert not queue.gave_up


def test_one_waits_for_longer_than_the_patience_while_the_queue_moves() -> None:
    queue = Queue(1)
    for number in range(5):
        queue.ask(number, takes_s=5.0)
    queue.run()
    assert queue.ended == list(range(5))


def test_but_not_for_ever() -> None:
    queue = Queue(1)
    for number in range(7):
        queue.ask(number, takes_s=5.0)
    queue.run()
    assert queue.ended == list(range(5))
    assert queue.gave_up == [5, 6]
    queue.ask(7)
    queue.run()
    assert queue.ended[-1] == 7


@pytest.mark.parametrize("takes_s", [7.0, 90.0])
def test_where_nothing_gets_done_nobody_waits_for_longer_than_the_patience(takes_s: float) -> None:
    queue = Queue(1)
    for number in range(4):
        queue.ask(number, takes_s=takes_s, fails=nothing_done)
    queue.run(9)
    assert set(queue.gave_up) >= {2, 3}


def test_who_is_cancelled_takes_no_turn_and_keeps_none() -> None:
    queue = Queue(1)
    tasks = [queue.ask(number) for number in range(4)]
    tasks[1].cancel()  # it waits
    queue.loop.call_later(1.0, tasks[2].cancel)  # its turn comes in the same moment
    queue.run()
    assert 1 not in queue.begun
    assert queue.ended[-1] == 3
    queue.ask(4)
    queue.run()
    assert queue.ended[-1] == 4
