"""The bound of each path of the index, and the distance from it.

``bench.bounds.worker`` measures a path's indispensable parts alone, in the same run. Their sum is its bound
on one thread; the rest is the code around them. No peer takes part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.bounds.worker import COMMIT, POP
from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.stats import Better
from bench.harness.trackers import OURS
from bench.harness.worker_process import measured
from bench.profile.bench import PATHS
from bench.profile.bench import worker as path_worker
from tidegate.index import ENTRY_BYTES

BOUND = ("add", "spill", "pop")
COUNT, COUNT_QUICK = 3_000_000, 500_000
PARTS = "the parts alone"
ALONE: tuple[tuple[str, str, str, Better], ...] = (
    ("copy_ns", "copying an entry, memory to memory", "ns an entry", "lower"),
    ("sort_ns", "sorting 64-bit keys (NumPy)", "ns an entry", "lower"),
    ("encode_ns", "encoding a block (pcodec)", "ns an entry", "lower"),
    ("decode_ns", "decoding a block (pcodec)", "ns an entry", "lower"),
    ("packed_bytes", "a block over an hour (pcodec)", "B an entry", "lower"),
    ("zstd_encode_ns", "encoding a block (differences, shuffle, zstd 3)", "ns an entry", "lower"),
    ("zstd_decode_ns", "decoding a block (the same)", "ns an entry", "lower"),
    ("zstd_bytes", "a block over an hour (the same)", "B an entry", "lower"),
    ("crc_gb_s", "CRC-32", "GB/s", "higher"),
    ("look_up_ns", "looking up random positions (64-bit roaring)", "ns an entry", "lower"),
    ("take_out_ns", "taking random positions out (the same)", "ns an entry", "lower"),
    ("put_in_ns", "a batch of consecutive positions put in (the same)", "ns an entry", "lower"),
    ("sync_small_ms", "synced write of a small record (RocksDB)", "ms", "lower"),
    ("sync_commit_ms", "synced write of a group commit (RocksDB)", "ms", "lower"),
    ("disk_sync_ms", "the same to a plain file", "ms", "lower"),
    ("disk_mb_s", "the disk, written in a row and synced", "MB/s", "higher"),
    ("executor_us", "round trip from the event loop to a thread", "µs", "lower"),
    ("lock_python_ms", "waiting for the interpreter lock beside a Python loop", "ms", "lower"),
    ("lock_sort_ms", "waiting for the interpreter lock beside a sort", "ms", "lower"),
)


def parts_of(path: str, alone: Mapping[str, float]) -> dict[str, float]:
    """The indispensable parts of a path, ns an entry each, by name."""
    crc_ns = 1 / alone["crc_gb_s"]  # a byte
    sync_ns = alone["disk_sync_ms"] * 1e6
    packed = alone["packed_bytes"]
    return {
        "add": {
            "put into the held set": alone["put_in_ns"],
            "copied into the journal, with checksum": alone["copy_ns"] + ENTRY_BYTES * crc_ns,
            "synced once a batch": sync_ns / COMMIT,
        },
        "spill": {
            "copied in order": alone["copy_ns"],
            "sorted": alone["sort_ns"],
            "encoded": alone["encode_ns"],
            "written to the log, with checksum": packed * (crc_ns + 1e3 / alone["disk_mb_s"]),
        },
        "pop": {
            "decoded": alone["decode_ns"],
            "looked up in the held set": alone["look_up_ns"],
            "moved from held to acknowledged": 2 * alone["take_out_ns"],
            "synced once a pop": sync_ns / POP,
        },
    }[path]


def run(plan: Plan, recorder: Recorder) -> None:
    """The parts alone and the paths, in each round."""
    count = COUNT_QUICK if plan.quick else COUNT
    recorder.parameters |= {"entries": count, "commit": COMMIT, "pop": POP}
    for number, _ in plan.rounds():
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            alone = measured("bench.bounds.worker", str(Path(folder) / "data"))
        for figure, title, unit, better in ALONE:
            if figure in alone:
                recorder.metric(PARTS, title, unit, better=better).add(OURS, round(alone[figure], 4))
        for path in BOUND:
            title, _ = PATHS[path]
            figures = path_worker(path, count, "bare")
            times = record(recorder, f"{title}, one thread", figures, parts_of(path, alone))
            plan.say(f"round {number + 1}, {title}: {times:.1f} times its bound")
        daemon(recorder, count, alone)
    if "zstd_bytes" not in alone:
        recorder.note("zstd left out: pyarrow is not installed, run: pip install -e '.[bench]'")


def record(recorder: Recorder, scenario: str, figures: Mapping[str, float], parts: dict[str, float]) -> float:
    """Keep one path beside its bound; returns the ratio."""
    bound_ns = sum(parts.values())
    times = figures["wall_ns"] / bound_ns
    for title, unit, value in (
        ("measured", "ns an entry", figures["wall_ns"]),
        ("measured, processor time", "ns an entry", figures["cpu_ns"]),
        ("bound, the sum of:", "ns an entry", bound_ns),
        *((f"… {name}", "ns an entry", part_ns) for name, part_ns in parts.items()),
        ("measured, of the bound", "times", times),
    ):
        recorder.metric(scenario, title, unit).add(OURS, round(value, 3))
    return times


def daemon(recorder: Recorder, count: int, alone: Mapping[str, float]) -> None:
    """The same in the daemon's way, with commits and persists in other threads."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        data = str(Path(folder) / "data")
        filled = measured("bench.scale.worker", "uniform", data, str(count))
        drained = measured("bench.scale.worker", "reopen-uniform", data, str(count))
    scenario = "as the daemon does it, commits and persists in other threads"
    for title, path, wall_ns in (
        ("added, durable", "add", 1e9 / filled["adds_per_s"]),
        ("popped, acknowledged, durable", "pop", 1e9 / drained["pop_ack_per_s"]),
    ):
        bound_ns = sum(parts_of(path, alone).values())
        recorder.metric(scenario, title, "ns an entry").add(OURS, round(wall_ns, 3))
        recorder.metric(scenario, f"{title}, of the bound", "times").add(OURS, round(wall_ns / bound_ns, 3))


BENCH = Bench(
    name="bounds",
    measures="what bounds each path of the index (memory, sort, packing, disk, lock) and how far off it is",
    takes="2 min",
    takes_quick="30 s",
    peers=(OURS,),
    runs=3,
    runs_quick=1,
    run=run,
    uses_pulsar=False,
)
