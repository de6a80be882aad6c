"""The job of `tidegate rebuild`.

    topic ─► parts ─► slice files ─► the daemon, block by block, the earliest first ─► the broker hears HELD
     plan      read      pack              take in                                      check

Invariants: the daemon gives this job the subscriptions before any read or write, so there is one job at a
time, in its own folder; only files in the manifest count; a job restarted after a kill reads the rest again.
A job for all existing subscriptions leaves out one deleted meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from tidegate.pipeline.errors import NoSubscriptionError, NoTopicError, OptionError, PipelineError
from tidegate.pipeline.job.runner import Context
from tidegate.pipeline.job.spread import spread
from tidegate.pipeline.rebuild import stages
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.index import IndexAtDaemon
from tidegate.pipeline.rebuild.kept_parts import KeptParts
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.rebuild.plan import Plan, StillThere, make_plan
from tidegate.pipeline.rebuild.serving import Servant, Serving
from tidegate.pipeline.rebuild.stages import Part, SliceFile
from tidegate.pipeline.topic.cluster import Cluster
from tidegate.plugin.wire.session import DaemonSession

PLAN = "plan.json"
MANIFEST = "manifest.json"
ENTRIES_HERE = 2_000_000
"""A process reads so many in little more time than Spark takes to be of help on the same machine."""
SLICE_FILES_A_TASK = 4
"""A million entries are packed in a tenth of a second: too little for a task of Spark's to pay."""

OURS = (stages.READ, stages.SLICES, MANIFEST, PLAN)
"""A job's files in its directory. The plan goes last: without it no file here is a job's."""

_OTHER_SOCKET = (
    "give the --socket of the daemon that this broker is attached to, or --any-daemon to go on all the same"
)
Numbered = tuple[int, IndexAtDaemon]
"""An index with the number of its target."""


class Stages:
    """Duration and entries of each stage."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.done: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def stage(self, name: str, words: str) -> Iterator[dict[str, Any]]:
        """One stage; entries of the dictionary are reported with it."""
        told: dict[str, Any] = {"name": name}
        began_s = time.monotonic()
        self.context.note(words)
        yield told
        told["seconds"] = round(time.monotonic() - began_s, 3)
        self.done.append(told)


class Prepared:
    """The topic's entries, in slice files."""

    def __init__(self, plan: Plan, files: Files, slices: Sequence[SliceFile]) -> None:
        self.plan = plan
        self.files = files
        self.slices = slices

    def of(self, target: int) -> list[SliceFile]:
        """The slice files of a target, the earliest first."""
        return sorted((one for one in self.slices if one.target == target), key=lambda one: one.name)


def run(context: Context, options: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Run a rebuild; (result, exit code). Raises ``UserError``."""
    wanted = RebuildOptions.model_validate(options)
    watch, files = Stages(context), Files(wanted.folder)
    if wanted.dry_run:
        return dry(wanted), 0
    with DaemonSession(Path(wanted.socket)) as session:
        former = kept_plan(files)
        cluster, plan, goes_on = planned(wanted, former, watch, KeptParts(files))
        left_out = LeftOut(context, wanted)
        indexes = served(session, wanted, plan, left_out)
        take_in(indexes)
        keep_plan(files, plan, anew=former is not None and not goes_on)
        prepared = prepare(context, wanted, watch, cluster, plan, files)
        told = []
        for number, index in indexes:
            with (
                left_out.if_deleted(index),
                watch.stage("take in", f"taking in {index.name.subscription} of {index.name.topic}") as stage,
            ):
                found = index.put(files, prepared.of(number))
                stage |= {"entries": found.entries, "added": found.added}
                told.append((index, {**index.name._asdict(), **found._asdict()}))
        checked = []
        with watch.stage("check", "comparing the index with the topic") as stage:
            for index, one in told:
                with left_out.if_deleted(index):
                    difference, one["let_go"] = index.settle(index.stored)
                    one["matched"] = difference.matched
                    one |= {name: len(positions) for name, positions in difference._asdict().items()}
                    checked.append(one)
            stage["entries"] = sum(one["entries"] for one in checked)
    return _result(wanted, watch, files, checked, left_out)


def _result(
    wanted: RebuildOptions, watch: Stages, files: Files, told: list[dict[str, Any]], left_out: LeftOut
) -> tuple[dict[str, Any], int]:
    matched = all(one["matched"] for one in told)
    result = {
        "entries": sum(one["entries"] for one in told),
        "added": sum(one["added"] for one in told),
        "matched": matched,
        "stages": watch.done,
        "subscriptions": told,
        "left_out": left_out.names,
    }
    if matched and not wanted.keep:
        files.remove(OURS)
    return result, 0 if matched else 1


def keep_plan(files: Files, plan: Plan, *, anew: bool = False) -> None:
    """Write a plan to its file.

    anew: it does not continue a former one, and the parts of that job are removed.
    """
    if anew:
        files.remove(OURS)
    files.make()
    files.write_json(PLAN, plan.as_json())


class LeftOut:
    """Subscriptions that a job for all existing ones leaves out.

    ``names``: the subscriptions, with their topics.
    """

    def __init__(self, context: Context, wanted: RebuildOptions) -> None:
        self._context, self._wanted = context, wanted
        self.names: list[dict[str, str]] = []

    def add(self, index: IndexAtDaemon, why: str) -> None:
        """One more."""
        self._context.note(f"{index.name} is left out: {why}")
        self.names.append(index.name._asdict())

    def note(self, text: str) -> None:
        """Show the user a line about a subscription that stays in."""
        self._context.note(text)

    @contextlib.contextmanager
    def if_deleted(self, index: IndexAtDaemon) -> Iterator[None]:
        """Continue if the subscription no longer exists, unless the user named it."""
        try:
            yield
        except (NoSubscriptionError, NoTopicError) as error:
            if not self._wanted.is_pattern:
                raise
            self.add(index, str(error))


def kept_plan(files: Files) -> Plan | None:
    """The plan of a former job here, None without one.

    Raises ``OptionError`` for a foreign file with one of our names, because it would be removed.
    """
    kept = files.read_json(PLAN)
    if kept is None:
        theirs = [name for name in OURS if files.has(name)]
    else:
        ours = isinstance(kept, dict) and {"version", "targets", "tasks"} <= kept.keys()
        theirs = [] if ours else [PLAN]
    if theirs:
        raise OptionError(
            f"{files.url}/{theirs[0]} is there and no job of Tidegate made it: choose another --work"
        )
    return None if kept is None else Plan.of_json(kept)


def planned(
    wanted: RebuildOptions, former: Plan | None, watch: Stages, still_there: StillThere | None = None
) -> tuple[Cluster, Plan, bool]:
    """The plan, and true if it continues a killed job's. Writes nothing."""
    with watch.stage("plan", "looking at the topic") as stage:
        cluster, plan, goes_on = make_plan(wanted, former, still_there)
        if former is not None and not goes_on:
            watch.context.note("a former job has read another input: beginning anew")
        stage |= {"tasks": len(plan.tasks), "entries": plan.entries}
    if plan.entries > ENTRIES_HERE or not watch.context.spark_is_here:
        watch.context.start_spark()
    return cluster, plan, goes_on


def served(session: DaemonSession, wanted: RebuildOptions, plan: Plan, left_out: LeftOut) -> list[Numbered]:
    """The indexes of all subscriptions, if this daemon serves them; with patterns, only those served.

    Raises ``PipelineError`` if another daemon serves one, and if no subscription is left.
    """
    indexes = [
        (number, IndexAtDaemon(session, wanted, target, subscription))
        for number, target in enumerate(plan.targets)
        for subscription in target.subscriptions
    ]
    if wanted.any_daemon:
        return indexes
    servant, found, said, why = Servant(session, wanted), [], set(), ""
    for number, index in indexes:
        with left_out.if_deleted(index):
            told = servant.serves(index.name)
            if told.serving is not Serving.NO:
                found.append((number, index))
                if told.why and told.why not in said:
                    said.add(told.why)
                    left_out.note(told.why)
                continue
            why = told.why
            if wanted.is_pattern:
                left_out.add(index, why)
                continue
            raise PipelineError(f"{why}: {_OTHER_SOCKET}")
    if why and not found:
        raise PipelineError(f"{why}: {_OTHER_SOCKET}")
    return found


def take_in(indexes: Sequence[Numbered]) -> None:
    """Take all of them at the daemon. Raises ``UserError`` if another job owns one."""
    for _, index in indexes:
        index.take_in()


def prepare(  # noqa: PLR0917 all that is known
    context: Context, wanted: RebuildOptions, watch: Stages, cluster: Cluster, plan: Plan, files: Files
) -> Prepared:
    """Read and pack; existing files count."""
    manifest = files.read_json(MANIFEST) or {}
    there = files.names(stages.READ)
    known = {name: Part(target, name, *rest) for name, (target, *rest) in manifest.get("read", {}).items()}
    parts = [
        known[task.name] for task in plan.tasks if task.name in known and f"{task.name}{stages.PART}" in there
    ]
    kept = {one.name for one in parts}
    todo = [task for task in plan.tasks if task.name not in kept]
    with watch.stage("read", "reading the backlog") as stage:
        stage["reused_tasks"] = len(parts)
        work = partial(stages.read_task, cluster, files)
        for done in spread(context, "reading the backlog", todo, work):
            parts += done
            manifest["read"] = {one.name: [one.target, *one[2:]] for one in parts}
            files.write_json(MANIFEST, manifest)
        stage |= {"entries": sum(one.read for one in parts), "delayed": sum(one.entries for one in parts)}
    with watch.stage("pack", "packing slices") as stage:
        wanted_files = stages.bins(parts, wanted.entries_per_file)
        found = chain.from_iterable(
            spread(context, "packing slices", wanted_files, partial(stages.pack, files), SLICE_FILES_A_TASK)
        )
        made = sorted(one for one in found if one.entries)
        manifest["slices"] = [one._asdict() for one in made]
        files.write_json(MANIFEST, manifest)
        stage |= {"entries": sum(one.entries for one in made), "files": len(made)}
        stage["size_bytes"] = sum(one.size_bytes for one in made)
        # The sum over all tasks, which run side by side.
        for name in ("gathered_s", "sorted_s", "encoded_s"):
            stage[name] = round(sum(getattr(one, name) for one in made), 3)
    return Prepared(plan, files, made)


def dry(wanted: RebuildOptions) -> dict[str, Any]:
    """The plan: entries to read, and their subscriptions; writes nothing."""
    _, plan, _ = make_plan(wanted, None)
    return {
        "dry_run": True,
        "entries": plan.entries,
        "tasks": len(plan.tasks),
        "subscriptions": [
            {"topic": target.topic, "subscription": subscription}
            for target in plan.targets
            for subscription in target.subscriptions
        ],
    }
