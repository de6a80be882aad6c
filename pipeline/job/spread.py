"""Independent pieces of work, done by this process until Spark is up and by Spark's workers from then on.

To start takes Spark seconds of both processor and clock, in which a process reads a million entries: whoever
has no more than that does not start it, and whoever has more does not wait for it. This process does some
pieces at a time, in threads: sockets, NumPy and the packing let go of the interpreter. Invariants: each piece
is done once, but for tasks that Spark tries again; what is done is given back in rounds, so that the caller
can write down how far it is; a worker tells what it has done when it has done it; nothing is under way any
more when it ends, unless the process ends.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import count
from typing import Any, Protocol, TypeVar

from tidegate.pipeline.errors import UnreachableError
from tidegate.pipeline.job.request import StageEvent
from tidegate.pipeline.job.runner import Context

_ROUNDS = 4
"""Pieces for each core between two times that the caller hears: so much a killed job does again."""
_THREADS = min(os.cpu_count() or 1, 4)
_numbers = count(-1, -1)
"""Of stages that are not Spark's."""


class Counted(Protocol):
    """What a piece has come to: ``read`` entries."""

    @property
    def read(self) -> int:
        """How many entries were looked at."""
        ...


Piece = TypeVar("Piece")
Done = TypeVar("Done", bound=Counted)


class _Progress:
    """How far it is; the workers' part are sums that Spark keeps."""

    def __init__(self, name: str, tasks: int) -> None:
        self._stage, self._name, self._tasks = next(_numbers), name, tasks
        self._done, self._entries = 0, 0
        self._sums: tuple[Any, Any] | None = None

    def add(self, entries: int) -> None:
        self._done += 1
        self._entries += entries

    def follow(self, sums: tuple[Any, Any]) -> None:
        self._sums = sums

    def event(self) -> StageEvent:
        done, entries = (0, 0) if self._sums is None else (one.value for one in self._sums)
        # A task that Spark tries again may be counted twice.
        tasks = min(self._done + done, self._tasks)
        return StageEvent(
            stage=self._stage,
            name=self._name,
            done=tasks,
            tasks=self._tasks,
            entries=self._entries + entries,
        )


def spread(
    context: Context, name: str, pieces: Sequence[Piece], work: Callable[[Piece], Done]
) -> Iterator[list[Done]]:
    """The results, in any order, as rounds of them are there. Raises what ``work`` raises."""
    progress = _Progress(name, len(pieces))
    waiting = deque(pieces)
    with context.shown(progress.event):
        yield from _here(context, waiting, work, progress)
        if waiting:
            yield from _on_spark(context, list(waiting), work, progress)


def _here(
    context: Context, waiting: deque[Piece], work: Callable[[Piece], Done], progress: _Progress
) -> Iterator[list[Done]]:
    """Takes pieces until Spark is up, or until this machine does not reach what its workers may."""
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
        # Whoever ends the process does not wait.
        pool.shutdown(wait=False, cancel_futures=True)


def _on_spark(
    context: Context, pieces: list[Piece], work: Callable[[Piece], Done], progress: _Progress
) -> Iterator[list[Done]]:
    spark = context.spark.sparkContext
    tasks, entries = spark.accumulator(0), spark.accumulator(0)
    progress.follow((tasks, entries))

    def counted(piece: Piece) -> Done:
        done = work(piece)
        tasks.add(1)
        entries.add(done.read)
        return done

    size = _ROUNDS * spark.defaultParallelism
    for at in range(0, len(pieces), size):
        part = pieces[at : at + size]
        # Not through SQL: planning and compiling a query takes the JVM longer than all else that it does.
        yield spark.parallelize(part, len(part)).map(counted).collect()
