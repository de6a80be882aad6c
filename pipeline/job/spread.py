"""Independent pieces of work, done by this process while Spark starts and by Spark's workers from then on.

To start takes Spark seconds, in which a process reads a million entries: whoever has no more than that does
not wait for it. Invariants: each piece is done once, but for tasks that Spark tries again; what is done is
given back in rounds, so that the caller can write down how far it is; a worker tells what it has done when it
has done it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Protocol, TypeVar

from tidegate.pipeline.errors import UnreachableError
from tidegate.pipeline.job.request import StageEvent
from tidegate.pipeline.job.runner import Context

_ROUNDS = 4
"""Pieces for each core between two times that the caller hears: so much a killed job does again."""
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
        while waiting and (not context.spark_is_up or len(waiting) == 1):
            try:
                done = work(waiting[0])
            except UnreachableError:
                if context.spark_is_here:
                    raise
                break  # the workers may reach what this machine does not
            waiting.popleft()
            progress.add(done.read)
            yield [done]
        if waiting:
            yield from _on_spark(context, list(waiting), work, progress)


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
