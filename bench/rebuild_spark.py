"""Packs made parts with Spark: ``python -m bench.rebuild_spark FOLDER BINS MASTER``.

Prints, as JSON, how many entries, how long it took once Spark and its Python workers were there, and the most
memory that one of these workers has had.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from functools import partial
from pathlib import Path

from tidegate.pipeline.job.request import SparkSettings
from tidegate.pipeline.job.session import start
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.stages import PART, Bin, SliceFile, pack


def main(argv: list[str]) -> int:
    """Pack; returns the exit code."""
    folder, spans, master = argv
    names = tuple(sorted(path.stem for path in (Path(folder) / "read").glob(f"*{PART}")))
    wanted = [Bin(0, number, low, high, names) for number, (low, high) in enumerate(json.loads(spans))]
    spark = start("rebuild", SparkSettings(master=master))
    try:
        context = spark.sparkContext
        cores = context.defaultParallelism
        context.parallelize(range(cores), cores).map(ready).collect()
        began_s = time.monotonic()
        tasks = context.parallelize(wanted, len(wanted))
        made = tasks.map(partial(packed, folder)).collect()
        seconds = time.monotonic() - began_s
    finally:
        spark.stop()
    told = {
        "entries": sum(one.entries for one, _ in made),
        "seconds": seconds,
        "worker_mib": max(mib for _, mib in made),
    }
    print(json.dumps(told), flush=True)
    return 0


def ready(number: int) -> int:
    """A worker has loaded what it needs."""
    importlib.import_module(pack.__module__)
    return number


def packed(folder: str, wanted: Bin) -> tuple[SliceFile, float]:
    """(a slice file, the most memory that this worker has had so far, in MiB)."""
    made = pack(Files(folder), wanted)
    return made, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
