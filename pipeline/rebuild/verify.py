"""The job of `tidegate verify`: every position and time of an index against the topic's.

The topic is read as for a rebuild, while broker and daemon run. Positions are compared as bitmaps; times by
Spark: what of the topic is not in the index with just its time, though its position is held, has another time
there. A message is never early all the same: the broker goes by the message's own time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidegate.index import Entries, PositionSet
from tidegate.pipeline.job.runner import Context
from tidegate.pipeline.rebuild import stages
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.index import IndexAtDaemon
from tidegate.pipeline.rebuild.job import OURS, Stages, planned, prepare, taken
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.rebuild.plan import Plan, Task
from tidegate.pipeline.rebuild.stages import READ
from tidegate.plugin.wire.session import DaemonSession

HELD = "held"
_LISTED_MAX = 1_000
_KINDS = ("missing", "extra", "wrong_time", "acknowledged_but_held")
_DDL = "deliver_at_ms bigint, ledger_id bigint, entry_id bigint"


def run(context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Do a verification; (result, exit code). Raises ``UserError``."""
    wanted = RebuildOptions.model_validate(options)
    watch, files = Stages(context), Files(wanted.work)
    # What was read by a former job is not what is there now.
    files.remove(OURS)
    counts = dict.fromkeys(("checked", *_KINDS), 0)
    told = []
    with DaemonSession(Path(wanted.socket)) as session:
        cluster, plan = planned(wanted, files, watch)
        indexes = taken(session, wanted, plan) if wanted.repair else list(of(session, wanted, plan))
        prepared = prepare(context, wanted, watch, cluster, plan, files)
        for number, index in indexes:
            tasks = [task for task in plan.tasks if task.target == number]
            with watch.stage("compare", f"comparing {index.name}") as stage:
                stored = PositionSet()
                for task in tasks:
                    stored.update(PositionSet.of_entries(stages.entries_of(files, task)))
                difference = index.compare(stored)
                stage["entries"] = len(stored)
            with watch.stage("times", "comparing times") as stage:
                entries, wrong = wrong_times(context, files, index, number, tasks)
                wrong = wrong.difference(difference.acknowledged_but_held).difference(difference.missing)
                stage["entries"] = entries
            found = {**difference._asdict(), "wrong_time": wrong}
            one: dict[str, Any] = {"topic": index.name.topic, "subscription": index.name.subscription}
            one |= {"checked": len(stored)} | {kind: len(found[kind]) for kind in _KINDS}
            one["examples"] = {kind: _listed(found[kind]) for kind in _KINDS if found[kind]}
            if wanted.repair and any(found[kind] for kind in _KINDS):
                with watch.stage("repair", "putting the index right"):
                    one["repaired"] = index.put_right(difference, wrong, files, prepared.of(number))
            for kind in counts:
                counts[kind] += one[kind]
            told.append(one)
    files.remove([*OURS, *(f"{HELD}-{number}" for number in range(len(plan.targets)))])
    exit_code = 1 if any(counts[kind] for kind in _KINDS) else 0
    return {**counts, "repaired": sum(one.get("repaired", 0) for one in told), "stages": watch.done,
            "subscriptions": told}, exit_code  # fmt: skip


def of(session: DaemonSession, wanted: RebuildOptions, plan: Plan) -> Iterator[tuple[int, IndexAtDaemon]]:
    """The indexes, only to be looked at."""
    for number, target in enumerate(plan.targets):
        for subscription in target.subscriptions:
            yield number, IndexAtDaemon(session, wanted, target, subscription)


def wrong_times(
    context: Context, files: Files, index: IndexAtDaemon, number: int, tasks: Sequence[Task]
) -> tuple[int, PositionSet]:
    """(held entries, positions that are held with no other than a wrong time)."""
    held, count = PositionSet(), 0
    folder = f"{HELD}-{number}"
    for page, entries in enumerate(index.entries()):
        held.update(PositionSet.of_entries(entries))
        count += len(entries)
        files.write(f"{folder}/{page:08}.parquet", stages.to_parquet(entries))
    if not count or not tasks:
        return count, PositionSet()
    spark, packed = context.spark, held.serialize()
    stored = spark.read.schema(_DDL).parquet(
        *(files.spark_path(f"{READ}/{one.name}.parquet") for one in tasks)
    )
    there = spark.read.schema(_DDL).parquet(files.spark_path(folder))

    def of_held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        positions = PositionSet.deserialize(packed)
        for batch in batches:
            entries = Entries(*(column.to_numpy().copy() for column in batch.columns))
            yield batch.filter(pa.array(positions.contains(entries)))

    differing = stored.join(there, ["deliver_at_ms", "ledger_id", "entry_id"], "left_anti")
    rows = differing.mapInArrow(of_held, _DDL).toArrow()
    return count, PositionSet.of_entries(stages.of_table(rows))


def _listed(positions: PositionSet) -> list[str]:
    """Some of them, as people write them."""
    return [f"{ledger}:{entry}" for (ledger, entry), _ in zip(positions, range(_LISTED_MAX), strict=False)]
