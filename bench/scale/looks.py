"""The tide and pages of a filled index, asked as a client asks the daemon: their times, the loop's pauses.

As in the daemon, the loop takes outlines, one thread reads and counts. All is due later than the clock, so
each answer is known.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench.harness.index_driver import IndexDriver
from bench.harness.made_entries import Source
from bench.harness.meters import Pauses
from bench.scale.steps import Figures
from tidegate.index import DelayIndex
from tidegate.plugin.daemon.drain_rates import DrainRates
from tidegate.plugin.daemon.looking import Looking

TIDES, PAGES, PAGE = 20, 100, 1_000
BEAT_S = 0.001
SEED = 1


class Beat:
    """Wakes on the loop each ``BEAT_S``, and notes each delay: other work on the loop meanwhile."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            began_ns = time.perf_counter_ns()
            await asyncio.sleep(BEAT_S)
            self._pauses.note("loop", max(0, time.perf_counter_ns() - began_ns - int(BEAT_S * 1e9)))


def look(driver: IndexDriver, index: DelayIndex, source: Source, count: int) -> Figures:
    """The figures of ``TIDES`` tides and ``PAGES`` pages of an index that has ``count`` entries of a source.

    Times in ms; ``tide_wrong``: messages that a tide misses or adds; ``page_short``: pages not full;
    ``loop_ms``: the loop's longest pause meanwhile, ``loop_alone_ms``: in a second before.
    """
    with ThreadPoolExecutor(1) as executor:
        looking = Looking(driver.catalog, driver.clock, executor, DrainRates(driver.clock))
        return asyncio.run(_look(looking, index, source, count))


async def _look(looking: Looking, index: DelayIndex, source: Source, count: int) -> Figures:
    name = {"topic": index.name.topic, "subscription": index.name.subscription}
    alone, asked, took = Pauses(), Pauses(), Pauses()
    resting = asyncio.create_task(Beat(alone).run())
    await asyncio.sleep(1.0)  # so long the loop beats alone
    resting.cancel()
    beat = asyncio.create_task(Beat(asked).run())
    wrong = inexact = short = 0
    for _ in range(TIDES):
        with took.timed("tide"):
            tide = await looking.tide(dict(name))
        counted = tide["overdue"] + sum(one["entries"] for one in tide["buckets"]) + tide["later"]
        wrong = max(wrong, abs(counted - count))
        inexact = max(inexact, tide["inexact_entries"])
    room_ms = max(1, int(source.span_ms * (1 - 2 * PAGE / count)))
    random = np.random.default_rng(SEED)
    for from_ms in (source.first_ms + random.integers(0, room_ms, PAGES)).tolist():
        with took.timed("page"):
            page = await looking.entries({**name, "from_ms": from_ms, "limit": PAGE})
        short += len(page["entries"]) != min(PAGE, count)
    beat.cancel()
    return {
        "tide_ms": took.quantile_ms(0.5, "tide"),
        "tide_longest_ms": took.longest_ms("tide"),
        "tide_wrong": wrong,
        "tide_inexact": inexact / count,
        "page_ms": took.quantile_ms(0.5, "page"),
        "page_p99_ms": took.quantile_ms(0.99, "page"),
        "page_short": short,
        "loop_ms": asked.longest_ms(),
        "loop_alone_ms": alone.longest_ms(),
    }
