"""How long until an index holds a backlog that it has never seen: rebuilt in bulk, or read by the dispatcher.

One topic with delayed messages on one real broker, whose index is emptied before each turn. `rebuild` is the
whole command, Spark's start included; its stages are told apart. The dispatcher's turn begins when a consumer
connects. Then slice files are packed from made entries, by Spark's tasks and by NumPy and Polars in one
process: the same bytes, so that one sees from which size on Spark is worth its start.

``--entries 10000000 --only Spark --only NumPy`` takes that size alone; with the peers that read a topic it is
how many messages the topic has.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import OURS, TRACKERS
from bench.harness.waiting import until
from bench.pulsar.stand import SUBSCRIPTION, Stand, now_ms
from tidegate.index import Entries, sort_entries

BOOKIES, BROKER, DISPATCHER = "rebuild", "rebuild, through the broker", "dispatcher"
SPARK, NUMPY, POLARS = "Spark", "NumPy", "Polars"
MESSAGES, MESSAGES_QUICK = (100_000, 1_000_000), (20_000,)
MADE, MADE_QUICK = (1_000_000, 10_000_000), (200_000,)
READERS = (BOOKIES, BROKER, DISPATCHER)
DAY_MS = 86_400_000
PATIENCE_S = 1_200.0


def run(plan: Plan, recorder: Recorder) -> None:
    """Measure both."""
    sizes = MESSAGES_QUICK if plan.quick else MESSAGES
    made = MADE_QUICK if plan.quick else MADE
    if plan.entries is not None:
        sizes = made = (plan.entries,)
    if set(READERS).intersection(plan.peers):
        recorder.parameters |= {"messages": ", ".join(f"{count:,}" for count in sizes), "spread": "24 h"}
        with Stand(TRACKERS[OURS]) as stand:
            for count in sizes:
                of_topic(plan, recorder, stand, count)
    without = {POLARS} if importlib.util.find_spec("polars") is None else set()
    if without.intersection(plan.peers):
        recorder.note("Polars is not installed (make bench-peers): left out.")
    for count in made:
        for _, peers in plan.rounds():
            for peer in peers:
                if peer in {SPARK, NUMPY, POLARS} - without:
                    plan.say(f"{count:,} made entries, {peer}")
                    packed(recorder, peer, count)
    judged(recorder, made)


def of_topic(plan: Plan, recorder: Recorder, stand: Stand, count: int) -> None:
    """All rounds on one topic with so many messages."""
    topic = f"backlog-{count}"
    plan.say(f"sending {count:,} delayed messages")
    stand.consumer(topic).stop()
    order = np.random.default_rng(7).permutation(count)
    times = now_ms() + 7 * DAY_MS + order * DAY_MS // count
    rows = np.column_stack([np.arange(count), np.zeros(count, np.int64), times]).astype(np.int64)
    sent = stand.send(topic, rows, PATIENCE_S)
    recorder.note(f"{count:,} messages were sent at {sent.per_s:,.0f} a second.")
    for _, peers in plan.rounds():
        for peer in [peer for peer in peers if peer in READERS]:
            plan.say(f"{count:,} messages, {peer}")
            empty(stand)
            if peer == DISPATCHER:
                read_by_dispatcher(stand, recorder, topic, count)
            else:
                rebuilt(stand, recorder, peer, topic, count)


def judged(recorder: Recorder, sizes: tuple[int, ...]) -> None:
    """Say from which size on Spark is faster than one process, by the medians."""
    told = {one.scenario: one.samples for one in recorder.metrics if one.title == "seconds"}
    medians = [
        (count, {peer: float(np.median(values)) for peer, values in told[scenario(count)].items()})
        for count in sizes
        if scenario(count) in told
    ]
    both = [(count, found) for count, found in medians if SPARK in found and NUMPY in found]
    if not both:
        return
    faster = [count for count, found in both if found[SPARK] < found[NUMPY]]
    words = (
        f"from {min(faster):,} entries on" if faster else f"not up to {both[-1][0]:,} entries on this machine"
    )
    recorder.note(f"Spark, its start included, packs faster than NumPy in one process {words}.")


def scenario(count: int) -> str:
    """Of made entries."""
    return f"{count:,} made entries into slice files"


def empty(stand: Stand) -> None:
    """Every copy of the index is gone, and the broker has forgotten what it knew of it."""
    if stand.daemon is None:
        raise BenchError("only Tidegate has an index to rebuild")
    stand.broker.stop()
    stand.daemon.stop()
    shutil.rmtree(stand.daemon.data_dir, ignore_errors=True)
    stand.daemon.start()
    stand.broker.start()


def rebuilt(stand: Stand, recorder: Recorder, peer: str, topic: str, count: int) -> None:
    """The command, as it is typed."""
    assert stand.daemon is not None
    done = subprocess.run(
        [
            sys.executable, "-m", "tidegate.plugin.cli", "rebuild", f"persistent://public/default/{topic}",
            SUBSCRIPTION,
            "--admin-url", stand.broker.admin_url, "--socket", str(stand.daemon.socket_path),
            "--work", str(stand.folder / "work"), "--json",
            "--read-from", "bookies" if peer == BOOKIES else "broker",
        ],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise BenchError(f"rebuild failed: {done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    where = f"{count:,} messages of one topic"
    recorder.metric(where, "until the index holds them", "s").add(peer, result["seconds"])
    rate = recorder.metric(where, "entries a second, all in all", "1/s", better="higher", headline=False)
    rate.add(peer, round(count / result["seconds"], 1))
    for stage in result["stages"]:
        recorder.metric(where, f"stage: {stage['name']}", "s", headline=False).add(peer, stage["seconds"])
        if stage["name"] in ("read", "pack", "take in"):
            title = f"entries a second: {stage['name']}"
            found = recorder.metric(where, title, "1/s", better="higher", headline=False)
            found.add(peer, round(count / max(stage["seconds"], 0.001), 1))


def read_by_dispatcher(stand: Stand, recorder: Recorder, topic: str, count: int) -> None:
    """A consumer connects, and the broker reads until its tracker has all."""
    began_s = time.monotonic()
    consumer = stand.consumer(topic)
    until(
        f"{count:,} messages in the tracker",
        lambda: stand.admin.delayed(topic, SUBSCRIPTION) >= count,
        PATIENCE_S,
        interval_s=0.1,
    )
    seconds = time.monotonic() - began_s
    consumer.stop()
    where = f"{count:,} messages of one topic"
    recorder.metric(where, "until the index holds them", "s").add(DISPATCHER, round(seconds, 3))
    rate = recorder.metric(where, "entries a second, all in all", "1/s", better="higher", headline=False)
    rate.add(DISPATCHER, round(count / seconds, 1))


def packed(recorder: Recorder, peer: str, count: int) -> None:
    """Slice files of made entries that stand in parts on disk, as after the reading of a topic."""
    from tidegate.pipeline.rebuild import stages  # noqa: PLC0415 Spark is an extra

    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        names, bins = made_parts(Path(folder), count)
        began_s = time.monotonic()
        if peer == SPARK:
            done = subprocess.run(
                [sys.executable, "-m", "bench.rebuild_spark", folder, json.dumps(bins)],
                capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            if done.returncode != 0:
                raise BenchError(f"Spark failed: {done.stderr[-2000:]}")
            entries = int(done.stdout.split()[-1])
        else:
            entries = 0
            for low, high in bins:
                of_span = with_numpy if peer == NUMPY else with_polars
                found = of_span([str(Path(folder) / "read" / f"{name}.parquet") for name in names], low, high)
                stages.to_bytes(found)
                entries += len(found)
        seconds = time.monotonic() - began_s
    if entries != count:
        raise BenchError(f"{peer} packed {entries:,} of {count:,} entries")
    where = scenario(count)
    recorder.metric(where, "seconds", "s").add(peer, round(seconds, 3))
    rate = recorder.metric(where, "entries a second", "1/s", better="higher", headline=False)
    rate.add(peer, round(count / seconds, 1))


def made_parts(folder: Path, count: int) -> tuple[list[str], list[tuple[int, int]]]:
    """(names of parts, spans of time for the slice files): entries over a day in random order."""
    from tidegate.pipeline.rebuild import stages  # noqa: PLC0415 Spark is an extra

    (folder / "read").mkdir()
    names, per_part = [], 250_000
    random = np.random.default_rng(3)
    for number, first in enumerate(range(0, count, per_part)):
        ids = np.arange(first, min(count, first + per_part), dtype=np.int64)
        times = random.integers(0, DAY_MS, len(ids)) + 1_800_000_000_000
        entries = sort_entries(Entries(times, np.full(len(ids), 7, np.int64), ids))
        names.append(f"0-{number}")
        (folder / "read" / f"{names[-1]}.parquet").write_bytes(stages.to_parquet(entries))
    files = -(-count // 1_000_000)
    edges = np.linspace(0, DAY_MS, files + 1).astype(np.int64) + 1_800_000_000_000
    return names, [(int(low), int(high) - 1) for low, high in pairwise(edges)]


def with_numpy(paths: list[str], low_ms: int, high_ms: int) -> Entries:
    """What is due in a span of time of these parts, sorted."""
    import pyarrow.parquet as pq  # noqa: PLC0415 an extra

    within = [("deliver_at_ms", ">=", low_ms), ("deliver_at_ms", "<=", high_ms)]
    tables = [pq.read_table(path, filters=within) for path in paths]
    parts = [Entries(*(table[name].to_numpy().copy() for name in COLUMNS)) for table in tables]
    return sort_entries(Entries.concat(parts))


def with_polars(paths: list[str], low_ms: int, high_ms: int) -> Entries:
    """The same."""
    import polars as pl  # noqa: PLC0415 an extra

    frame = (
        pl.scan_parquet(paths)
        .filter(pl.col("deliver_at_ms").is_between(low_ms, high_ms))
        .sort("deliver_at_ms", "ledger_id", "entry_id")
        .collect()
    )
    return Entries(*(frame[name].to_numpy().copy() for name in COLUMNS))


COLUMNS = ("deliver_at_ms", "ledger_id", "entry_id")
BENCH = Bench(
    name="rebuild",
    measures="how long until an index holds a backlog: rebuilt by Spark, or read by the dispatcher",
    takes="20 min",
    takes_quick="4 min",
    peers=(BOOKIES, BROKER, DISPATCHER, SPARK, NUMPY, POLARS),
    runs=3,
    runs_quick=1,
    run=run,
    ours=BOOKIES,
    takes_entries=True,
)
