"""The job of `tidegate verify`: every position and time of an index compared with the topic's.

The topic is read as for a rebuild, while broker and daemon run. Positions are compared as bitmaps; times
slice file by slice file: a held entry without its exact match in the index has another time there. (It is not
early: the broker uses its own time.) The files serve this run alone, in a folder of its own, removed however
it ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tidegate.index import Entries, PositionSet, sort_entries
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.runner import Context
from tidegate.pipeline.job.spread import spread
from tidegate.pipeline.rebuild import stages
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.index import IndexAtDaemon
from tidegate.pipeline.rebuild.job import (
    OURS,
    LeftOut,
    Numbered,
    Prepared,
    Stages,
    dry,
    keep_plan,
    planned,
    prepare,
    served,
    take_in,
)
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.rebuild.own_folder import own_folder, remove_abandoned
from tidegate.pipeline.rebuild.part_file import encode_part
from tidegate.pipeline.rebuild.stages import SliceFile
from tidegate.plugin.wire.session import DaemonSession

HELD = "held"
_OURS = (HELD, *OURS)
"""A verification's files in its folder."""
_LISTED_MAX = 1_000
_KINDS = ("missing", "extra", "wrong_time", "acknowledged_but_held")


def run(context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run a verification; (result, exit code). Raises ``UserError``."""
    wanted = RebuildOptions.model_validate(options)
    watch, files = Stages(context), Files(f"{wanted.folder}-{uuid.uuid4().hex[:8]}", goes_on=False)
    if wanted.dry_run:
        return dry(wanted), 0
    for folder in remove_abandoned(wanted.work, _OURS):
        context.note(f"{folder} was left by a verification that was killed: it is removed")
    return _verify(context, wanted, watch, files)


def _verify(
    context: Context, wanted: RebuildOptions, watch: Stages, files: Files
) -> tuple[dict[str, Any], int]:
    counts = dict.fromkeys(("checked", *_KINDS), 0)
    told = []
    with DaemonSession(Path(wanted.socket)) as session:
        left_out = LeftOut(context, wanted)
        cluster, plan, _ = planned(wanted, None, watch)
        indexes = served(session, wanted, plan, left_out)
        if wanted.repair:
            take_in(indexes)
        else:
            indexes = known(session, wanted, indexes, left_out)
        with own_folder(files, _OURS):
            keep_plan(files, plan)
            prepared = prepare(context, wanted, watch, cluster, plan, files)
            for number, index in indexes:
                with left_out.if_deleted(index):
                    one = _compared(context, wanted, watch, index, number, prepared)
                    for kind in counts:
                        counts[kind] += one[kind]
                    told.append(one)
    exit_code = 1 if any(counts[kind] for kind in _KINDS) else 0
    return {**counts, "repaired": sum(one.get("repaired", 0) for one in told), "stages": watch.done,
            "subscriptions": told, "left_out": left_out.names}, exit_code  # fmt: skip


def _compared(  # noqa: PLR0917 all that is known
    context: Context,
    wanted: RebuildOptions,
    watch: Stages,
    index: IndexAtDaemon,
    number: int,
    prepared: Prepared,
) -> dict[str, Any]:
    """The result for one index, repaired if wanted."""
    files = prepared.files
    tasks = [task for task in prepared.plan.tasks if task.target == number]
    with watch.stage("compare", f"comparing {index.name}") as stage:
        stored = PositionSet()
        for task in tasks:
            stored.update(PositionSet.of_entries(stages.entries_of(files, task)))
        difference = index.compare(stored)
        stage["entries"] = len(stored)
    with watch.stage("times", "comparing times") as stage:
        entries, wrong = wrong_times(context, files, index, number, prepared.of(number))
        wrong = wrong.difference(difference.acknowledged_but_held).difference(difference.missing)
        stage["entries"] = entries
    found = {**difference._asdict(), "wrong_time": wrong}
    one: dict[str, Any] = index.name._asdict()
    one |= {"checked": len(stored)} | {kind: len(found[kind]) for kind in _KINDS}
    one["examples"] = {kind: _listed(found[kind]) for kind in _KINDS if found[kind]}
    if wanted.repair and any(found[kind] for kind in _KINDS):
        with watch.stage("repair", "putting the index right"):
            one["repaired"] = index.put_right(difference, wrong, files, prepared.of(number))
    return one


def known(
    session: DaemonSession, wanted: RebuildOptions, indexes: Sequence[Numbered], left_out: LeftOut
) -> list[Numbered]:
    """The daemon's indexes, for looking only.

    Raises ``PipelineError`` if it has none, or lacks one that the user named.
    """
    there = {index.name for _, index in indexes if session.about(index.name)["known"]}
    missing = [index for _, index in indexes if index.name not in there]
    if missing and (not there or not wanted.is_pattern):
        more = f" and {len(missing) - 1:,} more" if missing[1:] else ""
        raise PipelineError(f"the daemon on {wanted.socket} has no index of {missing[0].name}{more}")
    for index in missing:
        left_out.add(index, "the daemon has no index of it")
    return [(number, index) for number, index in indexes if index.name in there]


class Page(NamedTuple):
    """Some of the index's entries, in a file; with its first and last delivery time."""

    name: str
    low_ms: int
    high_ms: int


class Checked(NamedTuple):
    """The result for a slice file. wrong: serialised positions whose time is not in the index."""

    read: int
    wrong: bytes


def wrong_times(
    context: Context, files: Files, index: IndexAtDaemon, number: int, slices: Sequence[SliceFile]
) -> tuple[int, PositionSet]:
    """(held entries, positions held only with a wrong time)."""
    held, count = PositionSet(), 0
    pages = []
    for at, entries in enumerate(index.entries()):
        held.update(PositionSet.of_entries(entries))
        count += len(entries)
        times = entries.deliver_at_ms
        pages.append(Page(f"{HELD}/{number}/{at:08}{stages.PART}", int(times[0]), int(times[-1])))
        files.write(pages[-1].name, encode_part(entries))
    wrong = PositionSet()
    for done in spread(context, "comparing times", slices, partial(check_times, files, pages)):
        for one in done:
            wrong.update(PositionSet.deserialize(one.wrong))
    return count, wrong.intersection(held)


def check_times(files: Files, pages: Sequence[Page], one: SliceFile) -> Checked:
    """Compare the entries of a slice file with those held for the same time."""
    stored = stages.entries_in(files, one)
    low, high = int(stored.deliver_at_ms[0]), int(stored.deliver_at_ms[-1])
    there = Entries.concat(
        [
            stages.span(files, page.name, low, high)
            for page in pages
            if page.low_ms <= high and page.high_ms >= low
        ]
    )
    both = sort_entries(Entries.concat([stored, sort_entries(there, unique=True)]))
    columns = (both.deliver_at_ms, both.ledger_id, both.entry_id)
    twice = np.flatnonzero(np.logical_and.reduce([column[1:] == column[:-1] for column in columns]))
    right = PositionSet.of_entries(both.take(twice))
    return Checked(len(stored), PositionSet.of_entries(stored).difference(right).serialize())


def _listed(positions: PositionSet) -> list[str]:
    """Some of them, for people."""
    return [f"{ledger}:{entry}" for (ledger, entry), _ in zip(positions, range(_LISTED_MAX), strict=False)]
