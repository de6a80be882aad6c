"""Packs made parts with Spark: ``python -m bench.rebuild_spark FOLDER BINS``; prints how many entries."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

from tidegate.pipeline.job.request import SparkSettings
from tidegate.pipeline.job.session import start
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.stages import Bin, pack


def main(argv: list[str]) -> int:
    """Pack; returns the exit code."""
    folder, spans = argv
    names = tuple(sorted(path.stem for path in (Path(folder) / "read").glob("*.parquet")))
    wanted = [Bin(0, number, low, high, names) for number, (low, high) in enumerate(json.loads(spans))]
    spark = start("rebuild", SparkSettings())
    try:
        tasks = spark.sparkContext.parallelize(wanted, len(wanted))
        made = tasks.map(partial(pack, Files(folder))).collect()
    finally:
        spark.stop()
    print(sum(one.entries for one in made), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
