"""The time until an index holds a backlog new to it: rebuilt in bulk, or read by the broker.

One topic with delayed messages on a real broker, whose index is emptied before each turn. `rebuild` is the
whole command, its stages reported separately. The broker's turns begin when a consumer connects: `dispatcher`
without the shim's reading ahead, as every other tracker, `reading ahead` with it. Then slice files are packed
from generated entries, by Spark's tasks (on one core, and on all) and by NumPy and Polars in one process: the
size from which Spark is worth its start, and a second worker's gain; NumPy in a process a core is the
machine's limit.

The dispatcher alone, at six minutes for 10 M messages, reads up to 1 M. If all peers are of one kind (a
topic's or generated entries), the other does not run.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import OURS, TRACKERS
from bench.harness.waiting import until
from bench.pulsar.stand import SUBSCRIPTION, Stand, now_ms
from tidegate.index import Entries, sort_entries

BOOKIES, BROKER = "rebuild", "rebuild, through the broker"
DISPATCHER, READ_AHEAD = "dispatcher", "reading ahead"
SPARK, SPARK_ONE, NUMPY, POLARS = "Spark", "Spark, one worker", "NumPy", "Polars"
NUMPY_ALL = "NumPy, a process a core"
MESSAGES, MESSAGES_QUICK = (1_000_000, 10_000_000), (20_000,)
MADE, MADE_QUICK = (1_000_000, 10_000_000, 100_000_000), (200_000,)
DISPATCHER_MOST = 1_000_000
READERS = (BOOKIES, BROKER, DISPATCHER, READ_AHEAD)
PACKERS = (SPARK, SPARK_ONE, NUMPY, NUMPY_ALL, POLARS)
MASTERS = {SPARK: "local[*]", SPARK_ONE: "local[1]"}
READ_AHEAD_KEY = "tidegateReadAhead"
PARTS_OF_PACK = {
    "gathered_s": "pack: gather from parts, tasks together",
    "sorted_s": "pack: sort, tasks together",
    "encoded_s": "pack: encode, tasks together",
}
RATE_TARGET, MADE_RATE_TARGET = 200_000.0, 1_000_000.0
FASTER_TARGET, SPEED_UP_TARGET = 8.0, 1.8
DAY_MS = 86_400_000
PATIENCE_S = 3_600.0
HOLDS = "until the index holds them"
WITHOUT_START = "seconds without the workers' start"
ALL_IN_ALL = "entries a second, all in all"


def run(plan: Plan, recorder: Recorder) -> None:
    """Measure both."""
    check_installed()
    sizes: tuple[int, ...] = MESSAGES_QUICK if plan.quick else MESSAGES
    made: tuple[int, ...] = MADE_QUICK if plan.quick else MADE
    if plan.entries:
        sizes = made = plan.entries
    if set(READERS).intersection(plan.peers):
        recorder.parameters |= {"messages": ", ".join(f"{count:,}" for count in sizes), "spread": "24 h"}
        with Stand(TRACKERS[OURS]) as stand:
            for count in sizes:
                of_topic(plan, recorder, stand, count)
                compared(recorder, count)
    without = set() if is_installed("polars") else {POLARS}
    if without.intersection(plan.peers):
        recorder.note("Polars is not installed (make bench-peers): left out.")
    for count in made:
        for _, peers in plan.rounds():
            for peer in peers:
                if peer in set(PACKERS) - without:
                    plan.say(f"{count:,} made entries, {peer}")
                    packed(recorder, peer, count)
    judged(recorder, made)


def check_installed() -> None:
    """Check before anything long that the pipeline can run; raises BenchError that names the extra."""
    missing = [name for name in ("pyspark", "pyarrow", "google.protobuf") if not is_installed(name)]
    if missing:
        raise BenchError(f"it needs {', '.join(missing)}: run pip install -e '.[bench,spark]'")


def is_installed(name: str) -> bool:
    """True if a module, of a package or not, can be imported; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # even its package is missing
        return False


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
        for peer in [peer for peer in peers if peer in readers(count)]:
            plan.say(f"{count:,} messages, {peer}")
            empty(stand, reads_ahead=peer != DISPATCHER)
            if peer in {DISPATCHER, READ_AHEAD}:
                read_by_broker(stand, recorder, peer, topic, count)
            else:
                rebuilt(stand, recorder, peer, topic, count)


def readers(count: int) -> tuple[str, ...]:
    """The peers that read so many messages."""
    return tuple(peer for peer in READERS if peer != DISPATCHER or count <= DISPATCHER_MOST)


def of_messages(count: int) -> str:
    """Of a topic."""
    return f"{count:,} messages of one topic"


def medians(recorder: Recorder, where: str, title: str) -> dict[str, float]:
    """By peer."""
    found = [one for one in recorder.metrics if (one.scenario, one.title) == (where, title)]
    return {peer: float(np.median(values)) for one in found for peer, values in one.samples.items()}


def compared(recorder: Recorder, count: int) -> None:
    """Note how much sooner a rebuild is done than the dispatcher, the only way without it."""
    seconds = medians(recorder, of_messages(count), HOLDS)
    if BOOKIES in seconds and DISPATCHER in seconds:
        times = seconds[DISPATCHER] / seconds[BOOKIES]
        target = f" (goal {FASTER_TARGET:g})" if count == DISPATCHER_MOST else ""
        recorder.note(
            f"{count:,} messages: rebuilt {times:.1f} times as fast as the dispatcher reads them{target}."
        )


def judged(recorder: Recorder, sizes: tuple[int, ...]) -> None:
    """Note the size from which Spark is faster than one process, and a second worker's gain."""
    both = []
    for count in sizes:
        seconds, work = (medians(recorder, scenario(count), title) for title in ("seconds", WITHOUT_START))
        if SPARK in seconds and NUMPY in seconds:
            both.append((count, seconds[SPARK] < seconds[NUMPY]))
        if SPARK in work and SPARK_ONE in work:
            bound = ""
            if NUMPY in seconds and NUMPY_ALL in work:
                bound = f"; {NUMPY_ALL}: {seconds[NUMPY] / work[NUMPY_ALL]:.2f} times"
            recorder.note(
                f"{count:,} made entries: {work[SPARK_ONE] / work[SPARK]:.2f} times as fast on all cores as "
                f"on one, Spark's start left out (goal {SPEED_UP_TARGET:g} on two){bound}."
            )
    if not both:
        return
    faster = [count for count, is_faster in both if is_faster]
    words = (
        f"from {min(faster):,} entries on" if faster else f"not up to {both[-1][0]:,} entries on this machine"
    )
    recorder.note(f"Spark, its start included, packs faster than NumPy in one process {words}.")


def scenario(count: int) -> str:
    """Of generated entries."""
    return f"{count:,} made entries into slice files"


def empty(stand: Stand, *, reads_ahead: bool) -> None:
    """Delete every copy of the index, and let the broker forget its state."""
    if stand.daemon is None:
        raise BenchError("only Tidegate has an index to rebuild")
    stand.broker.stop()
    stand.daemon.stop()
    shutil.rmtree(stand.daemon.data_dir, ignore_errors=True)
    stand.daemon.start()
    stand.broker.configure({READ_AHEAD_KEY: str(reads_ahead).lower()})
    stand.broker.start()


def rebuilt(stand: Stand, recorder: Recorder, peer: str, topic: str, count: int) -> None:
    """The command, as typed."""
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
    where = of_messages(count)
    holds(recorder, peer, count, result["seconds"])
    for stage in result["stages"]:
        recorder.metric(where, f"stage: {stage['name']}", "s", headline=False).add(peer, stage["seconds"])
        if stage["name"] in ("read", "pack", "take in"):
            title = f"entries a second: {stage['name']}"
            found = recorder.metric(where, title, "1/s", better="higher", headline=False)
            found.add(peer, round(count / max(stage["seconds"], 0.001), 1))
        for name, title in PARTS_OF_PACK.items():
            if name in stage:
                recorder.metric(where, title, "s", headline=False).add(peer, stage[name])


def holds(recorder: Recorder, peer: str, count: int, seconds: float) -> None:
    """The index holds them after so long."""
    where = of_messages(count)
    recorder.metric(where, HOLDS, "s").add(peer, round(seconds, 3))
    target = RATE_TARGET if count >= MESSAGES[0] else None
    rate = recorder.metric(where, ALL_IN_ALL, "1/s", better="higher", target=target)
    rate.add(peer, round(count / seconds, 1))


def read_by_broker(stand: Stand, recorder: Recorder, peer: str, topic: str, count: int) -> None:
    """A consumer connects, and the broker reads until its tracker has all."""
    began_s = time.monotonic()
    consumer = stand.consumer(topic)
    until(
        f"{count:,} messages in the tracker",
        lambda: stand.admin.delayed(topic, SUBSCRIPTION) >= count,
        PATIENCE_S,
        interval_s=0.1,
    )
    holds(recorder, peer, count, time.monotonic() - began_s)
    consumer.stop()


def packed(recorder: Recorder, peer: str, count: int) -> None:
    """Slice files of generated entries, whose parts are on disk as after the reading of a topic."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        names, bins = made_parts(Path(folder), count, parquet=peer == POLARS)
        began_s = time.monotonic()
        if peer in MASTERS:
            done = subprocess.run(
                [sys.executable, "-m", "bench.rebuild.spark", folder, json.dumps(bins), MASTERS[peer]],
                capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            if done.returncode != 0:
                raise BenchError(f"Spark failed: {done.stderr[-2000:]}")
            told = json.loads(done.stdout.splitlines()[-1])
            entries = int(told["entries"])
            work = recorder.metric(scenario(count), WITHOUT_START, "s", headline=False)
            work.add(peer, round(told["seconds"], 3))
            memory = recorder.metric(scenario(count), "most memory of a worker", "MiB", headline=False)
            memory.add(peer, round(told["worker_mib"], 1))
        elif peer == NUMPY_ALL:
            entries = on_all_cores(recorder, folder, names, bins, count)
        else:
            of_span = with_numpy if peer == NUMPY else with_polars
            entries = sum(pack_span(of_span, folder, names, span) for span in bins)
        seconds = time.monotonic() - began_s
    if entries != count:
        raise BenchError(f"{peer} packed {entries:,} of {count:,} entries")
    where = scenario(count)
    recorder.metric(where, "seconds", "s").add(peer, round(seconds, 3))
    target = MADE_RATE_TARGET if count >= MADE[1] else None
    rate = recorder.metric(where, "entries a second", "1/s", better="higher", target=target)
    rate.add(peer, round(count / seconds, 1))


def on_all_cores(
    recorder: Recorder, folder: str, names: list[str], bins: list[tuple[int, int]], count: int
) -> int:
    """Entries packed by NumPy in a process a core, and the time without the processes' start."""
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        # At least one span each: all processes have started, and have loaded their modules.
        list(pool.map(partial(pack_span, with_numpy, folder, []), bins[:1] * 4 * cores))
        began_s = time.monotonic()
        entries = sum(pool.map(partial(pack_span, with_numpy, folder, names), bins))
        work = recorder.metric(scenario(count), WITHOUT_START, "s", headline=False)
        work.add(NUMPY_ALL, round(time.monotonic() - began_s, 3))
    return entries


def pack_span(
    of_span: Callable[[Path, list[str], int, int], Entries],
    folder: str,
    names: list[str],
    span_ms: tuple[int, int],
) -> int:
    """Pack the entries of these parts due in this span; returns their number."""
    from tidegate.pipeline.rebuild import stages  # noqa: PLC0415 Spark is an extra

    found = of_span(Path(folder), names, *span_ms)
    stages.to_bytes(found)
    return len(found)


def made_parts(folder: Path, count: int, *, parquet: bool) -> tuple[list[str], list[tuple[int, int]]]:
    """(names of parts, spans of time for the slice files): entries over a day in random order.

    parquet: for peers that do not read a rebuild's parts.
    """
    from tidegate.pipeline.rebuild import part_file, stages  # noqa: PLC0415 Spark is an extra

    (folder / "read").mkdir()
    names, per_part = [], 250_000
    random = np.random.default_rng(3)
    for number, first in enumerate(range(0, count, per_part)):
        ids = np.arange(first, min(count, first + per_part), dtype=np.int64)
        times = random.integers(0, DAY_MS, len(ids)) + 1_800_000_000_000
        entries = sort_entries(Entries(times, np.full(len(ids), 7, np.int64), ids))
        names.append(f"0-{number}")
        if parquet:
            write_parquet(entries, folder / "read" / f"{names[-1]}.parquet")
        else:
            (folder / stages.part_path(names[-1])).write_bytes(part_file.encode_part(entries))
    files = -(-count // 1_000_000)
    edges = np.linspace(0, DAY_MS, files + 1).astype(np.int64) + 1_800_000_000_000
    return names, [(int(low), int(high) - 1) for low, high in pairwise(edges)]


def write_parquet(entries: Entries, path: Path) -> None:
    """In groups as small as the blocks of a part."""
    import pyarrow as pa  # noqa: PLC0415 an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table([entries.deliver_at_ms, entries.ledger_id, entries.entry_id], names=list(COLUMNS))
    pq.write_table(table, path, row_group_size=8_192, compression="zstd", use_dictionary=False)


def with_numpy(folder: Path, names: list[str], low_ms: int, high_ms: int) -> Entries:
    """The entries of these parts due in a span of time, sorted."""
    from tidegate.pipeline.rebuild import part_file, stages  # noqa: PLC0415 Spark is an extra

    parts = []
    for name in names:
        with (folder / stages.part_path(name)).open("rb") as file:
            parts.append(part_file.read_span(file, name, low_ms, high_ms))
    return sort_entries(Entries.concat(parts))


def with_polars(folder: Path, names: list[str], low_ms: int, high_ms: int) -> Entries:
    """The same."""
    import polars as pl  # noqa: PLC0415 an extra

    frame = (
        pl.scan_parquet([folder / "read" / f"{name}.parquet" for name in names])
        .filter(pl.col("deliver_at_ms").is_between(low_ms, high_ms))
        .sort("deliver_at_ms", "ledger_id", "entry_id")
        .collect()
    )
    return Entries(*(frame[name].to_numpy().copy() for name in COLUMNS))


COLUMNS = ("deliver_at_ms", "ledger_id", "entry_id")
BENCH = Bench(
    name="rebuild",
    measures="how long until an index holds a backlog: rebuilt by Spark, or read by the dispatcher",
    takes="35 min",
    takes_quick="4 min",
    peers=(*READERS, *PACKERS),
    runs=3,
    runs_quick=1,
    run=run,
    ours=BOOKIES,
    takes_entries=True,
)
