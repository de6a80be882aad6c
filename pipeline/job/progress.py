"""A job's progress, from Spark's own records of its stages, or from a job that knows better.

Invariant: watching never disturbs the job; unreadable progress is not shown.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidegate.pipeline.job.request import StageEvent
from tidegate.plugin.shared.repeated import Repeated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 0.5
_CALL_SITE = re.compile(r"\A(?:(\w+)|[\w$]+) at \S+:\d+\Z")
"""Spark's own name of an unnamed stage: a method, or one made by Scala's compiler."""


@contextlib.contextmanager
def phase(spark: SparkSession, name: str) -> Iterator[None]:
    """Name the stages of the block for people."""
    context = spark.sparkContext
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(name)
    try:
        yield
    finally:
        context.setJobDescription(before or "")


class StageWatch(Repeated):
    """Reports active stages, and each ended one once more, from its own thread.

    It looks every ``INTERVAL_S`` and misses a stage in between. Spark's own events would need a Java listener
    and a callback server in the driver.
    """

    def __init__(self, tell: Callable[[StageEvent], None]) -> None:
        super().__init__(self._watch, INTERVAL_S)
        self._store: Any = None
        self._tell = tell
        self._told: dict[int, StageEvent] = {}
        self._instead: Callable[[], StageEvent] | None = None
        self._lock = threading.Lock()

    def of(self, spark: SparkSession) -> None:
        """Watch the stages of this session from now on."""
        self._store = spark.sparkContext._jsc.sc().statusStore()

    @contextlib.contextmanager
    def instead(self, look: Callable[[], StageEvent]) -> Iterator[None]:
        """Report ``look`` at the block's beginning, now and then and at its end, and no stage of Spark's."""
        with self._lock:
            self._instead = look
            self._changed(look())
        try:
            yield
        finally:
            with self._lock:
                self._changed(look())
                self._instead = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, after a last look."""
        super().__exit__(kind, error, trace)
        self._watch()

    def _watch(self) -> None:
        with self._lock, contextlib.suppress(Exception):
            if self._instead is not None:
                self._changed(self._instead())
            elif self._store is not None:
                # Spark's own object, which may be gone when the session stops in the middle.
                self._look()

    def _look(self) -> None:
        active = self._store.activeStages()
        seen = set()
        for at in range(active.size()):
            event = _event(active.apply(at))
            seen.add(event.stage)
            self._changed(event)
        for stage in [known for known, event in self._told.items() if event.done < event.tasks]:
            if stage not in seen:
                self._changed(_event(self._store.lastStageAttempt(stage)))

    def _changed(self, event: StageEvent) -> None:
        if self._told.get(event.stage) != event:
            self._told[event.stage] = event
            self._tell(event)


def _event(stage: Any) -> StageEvent:
    description = stage.description()
    name = (description.get() if description.isDefined() else "") or stage.name()
    # By default Spark describes a streaming query with its name, its ids and the batch, a line each.
    name = name.partition("\n")[0]
    if (site := _CALL_SITE.fullmatch(name)) is not None:
        name = f"Spark: {site[1] or 'a part of a query'}"
    entries = stage.inputRecords() or stage.shuffleReadRecords()
    return StageEvent(
        stage=stage.stageId(),
        name=name,
        done=stage.numCompleteTasks(),
        tasks=stage.numTasks(),
        entries=int(entries) or None,
    )
