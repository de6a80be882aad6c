"""Independent pieces of work, done by this process until Spark is up and by Spark's workers from then on.

Spark's start takes seconds in which a process reads a million entries: a smaller job does not start it, a
larger one does not wait for it. This process does several pieces at a time, in threads. Invariants: each
piece is done once, except for tasks that Spark retries; results come in rounds, for the caller's record of
progress; a worker reports a finished piece; no work remains at the end, unless the process ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from typing import Any, Protocol, TypeVar

from tidegate.pipeline.errors import UnreachableError
from tidegate.pipeline.job.request import StageEvent
from tidegate.pipeline.job.runner import Context

_ROUNDS = 4
"""Pieces for each core between two reports to the caller; a killed job repeats as many."""
_LOOK_S = 0.25
_THREADS = min(os.cpu_count() or 1, 4)
_numbers = count(-1, -1)
"""Of stages that are not Spark's."""


class Counted(Protocol):
    """The result of a piece: ``read`` entries."""

    @property
    def read(self) -> int:
        """The number of entries examined."""
        ...


Piece = TypeVar("Piece")
Done = TypeVar("Done", bound=Counted)


class _Progress:
    """The progress; of the workers' part, the reports that have arrived."""

    def __init__(self, name: str, tasks: int) -> None:
        self._stage, self._name, self._tasks = next(_numbers), name, tasks
        self._done, self._entries = 0, 0
        self._there: Callable[[], Sequence[Counted]] = tuple

    def add(self, entries: int) -> None:
        self._done += 1
        self._entries += entries

    def follow(self, there: Callable[[], Sequence[Counted]]) -> None:
        self._there = there

    def event(self) -> StageEvent:
        there = self._there()
        return StageEvent(
            stage=self._stage,
            name=self._name,
            done=self._done + len(there),
            tasks=self._tasks,
            entries=self._entries + sum(one.read for one in there),
        )


def spread(
    context: Context, name: str, pieces: Sequence[Piece], work: Callable[[Piece], Done], together: int = 1
) -> Generator[list[Done], None, None]:
    """The results, in any order, in rounds as they arrive.

    Raises the exceptions of ``work``; closing it ends the work.

    together: the number of pieces in a task of Spark's, which costs some 30 ms however small.
    """
    progress = _Progress(name, len(pieces))
    waiting = deque(pieces)
    with context.shown(progress.event):
        yield from _here(context, waiting, work, progress)
        if waiting:
            yield from _on_spark(context, list(waiting), work, progress, together)


def _here(
    context: Context, waiting: deque[Piece], work: Callable[[Piece], Done], progress: _Progress
) -> Iterator[list[Done]]:
    """Work on pieces until Spark is up, or until one needs a host that only its workers reach."""
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="piece")
    under_way: dict[Future[Done], Piece] = {}
    unreachable = False
    try:
        while True:
            while (
                waiting
                and len(under_way) < _THREADS
                and not unreachable
                and (not context.spark_is_up or len(waiting) + len(under_way) == 1)
            ):
                piece = waiting.popleft()
                under_way[pool.submit(work, piece)] = piece
            if not under_way:
                break
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                piece = under_way.pop(future)
                try:
                    done = future.result()
                except UnreachableError:
                    if context.spark_is_here:
                        raise
                    unreachable = True
                    waiting.appendleft(piece)
                    continue
                progress.add(done.read)
                yield [done]
    except Exception:
        pool.shutdown(cancel_futures=True)
        raise
    finally:
        # A process that ends does not wait.
        pool.shutdown(wait=False, cancel_futures=True)


def _on_spark(
    context: Context,
    pieces: Sequence[Piece],
    work: Callable[[Piece], Done],
    progress: _Progress,
    together: int,
) -> Iterator[list[Done]]:
    """One job for all, so that workers wait for each other only at the end."""
    from pyspark.accumulators import AddingAccumulatorParam  # noqa: PLC0415 Spark may not be needed

    spark = context.spark.sparkContext
    cores = spark.defaultParallelism
    # Results arrive once each, as tasks end, and Spark keeps no count beside.
    ended: Any = spark.accumulator((), AddingAccumulatorParam(()))
    progress.follow(lambda: [done for _, done in ended.value])

    def worked(tasks: Iterable[list[tuple[int, Piece]]]) -> Iterator[tuple[int, Done]]:
        _keep_what_is_loaded()
        for task in tasks:
            found = [(number, work(piece)) for number, piece in task]
            ended.add(tuple(found))
            yield from found

    tasks = grouped(list(enumerate(pieces)), together, cores)
    told: set[int] = set()
    pool = ThreadPoolExecutor(1, thread_name_prefix="spark-job")
    try:
        # Not through SQL: the JVM's planning and compiling of a query takes longer than all the rest.
        job = pool.submit(spark.parallelize(tasks, len(tasks)).mapPartitions(worked).collect)
        while not wait([job], _LOOK_S).done:
            new = [(number, done) for number, done in ended.value if number not in told]
            if len(new) >= _ROUNDS * cores:
                told.update(number for number, _ in new)
                yield [done for _, done in new]
        yield [done for number, done in job.result() if number not in told]
    except BaseException:
        with contextlib.suppress(Exception):
            spark.cancelAllJobs()
        raise
    finally:
        # A process that ends does not wait.
        pool.shutdown(wait=False, cancel_futures=True)


def grouped(pieces: Sequence[Piece], together: int, cores: int) -> list[list[Piece]]:
    """Groups of ``together`` pieces for tasks; smaller towards the end, where others would wait. Pure."""
    tasks, at = [], 0
    while at < len(pieces):
        size = max(1, min(together, (len(pieces) - at) // (2 * cores)))
        tasks.append(list(pieces[at : at + size]))
        at += size
    return tasks


def _keep_what_is_loaded() -> None:
    """Spark's worker collects garbage after every task: exempt the modules, which take 20 to 40 ms."""
    if not gc.get_freeze_count():
        gc.freeze()
