"""Packs made parts with Spark, as a rebuild does: ``python -m bench.rebuild.spark FOLDER BINS MASTER``.

Prints as JSON the entries, the time once Spark and its Python workers were up, and a worker's peak memory.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidegate.pipeline.job.request import Request, SparkSettings
from tidegate.pipeline.job.runner import RunningJob
from tidegate.pipeline.job.spread import spread
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.job import SLICE_FILES_A_TASK
from tidegate.pipeline.rebuild.stages import PART, Bin, pack


def main(argv: list[str]) -> int:
    """Pack; returns the exit code."""
    folder, spans, master = argv
    names = tuple(sorted(path.stem for path in (Path(folder) / "read").glob(f"*{PART}")))
    wanted = [Bin(0, number, low, high, names) for number, (low, high) in enumerate(json.loads(spans))]
    request = Request(command="rebuild", options={}, spark=SparkSettings(master=master, asked_for=True))
    with RunningJob(request, lambda _: None) as running:
        context = running.spark.sparkContext
        cores = context.defaultParallelism
        context.parallelize(range(cores), cores).map(ready).collect()
        began_s = time.monotonic()
        work = partial(packed, Files(folder))
        made = [one for done in spread(running, "packing", wanted, work, SLICE_FILES_A_TASK) for one in done]
        seconds = time.monotonic() - began_s
    told = {
        "entries": sum(one.read for one in made),
        "seconds": seconds,
        "worker_mib": max(one.worker_mib for one in made),
    }
    print(json.dumps(told), flush=True)
    return 0


def ready(number: int) -> int:
    """Load a worker's modules."""
    importlib.import_module(pack.__module__)
    return number


class Packed(NamedTuple):
    """A slice file of so many entries, and the peak memory of this worker so far."""

    read: int
    worker_mib: float


def packed(files: Files, wanted: Bin) -> Packed:
    """Make a slice file."""
    made = pack(files, wanted)
    return Packed(made.entries, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
