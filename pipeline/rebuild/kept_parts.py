"""A check that a former job's parts match the topic, by the times of some entries read again.

Positions do not show it: a cluster recreated, or restored from a backup, reuses its ledgers' ids for other
messages, which the index would then hold back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pyroaring import BitMap

from tidegate.pipeline.rebuild import stages
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.plan import Plan, Task, live
from tidegate.pipeline.topic.cluster import Cluster
from tidegate.pipeline.topic.ranges import EntryRange, Position
from tidegate.pipeline.topic.reader import EntryReader

TASKS_MAX = 32
"""At most so many parts are looked at."""
_CANDIDATES = 256


class KeptParts:
    """The parts in ``files``. Called as ``plan.StillThere``; writes nothing: the job owns nothing yet."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def __call__(self, cluster: Cluster, former: Plan, found: Sequence[Sequence[EntryRange]]) -> bool:
        """True if an entry of each sampled part is due at the part's time.

        Raises ``TopicError``, and ``DamagedError`` for a part, which is then removed.
        """
        there = self._files.names(stages.READ)
        tasks = [task for task in former.tasks if f"{task.name}{stages.PART}" in there]
        chosen = tasks[:: -(-len(tasks) // TASKS_MAX) or 1]
        now = [live(ranges) for ranges in found]
        with EntryReader(cluster) as reader:
            return all(
                _is_due(reader, found[task.target], at, deliver_at_ms)
                for task in chosen
                for at, deliver_at_ms in self._sample(task, now[task.target])
            )

    def _sample(self, task: Task, now: dict[int, BitMap]) -> Iterator[tuple[Position, int]]:
        """One entry of the part that still exists, and its due time; none if there is none."""
        entries = stages.entries_of(self._files, task)
        if not len(entries):
            return
        for at in np.unique(np.linspace(0, len(entries) - 1, _CANDIDATES).astype(np.int64)).tolist():
            ledger_id, entry_id = int(entries.ledger_id[at]), int(entries.entry_id[at])
            if entry_id in now.get(ledger_id, ()):
                yield Position(ledger_id, entry_id), int(entries.deliver_at_ms[at])
                return


def _is_due(reader: EntryReader, ranges: Sequence[EntryRange], at: Position, deliver_at_ms: int) -> bool:
    (one,) = (
        each
        for each in ranges
        if each.ledger.ledger_id == at.ledger_id and each.first <= at.entry_id <= each.last
    )
    chunks = reader.delayed(one.part(at.entry_id, at.entry_id))
    return [due for chunk in chunks for due in chunk.deliver_at_ms.tolist()] == [deliver_at_ms]
