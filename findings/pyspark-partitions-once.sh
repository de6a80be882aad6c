#!/usr/bin/env bash
# PySpark 4.3.0: a DataFrame of a Python data source asks for its partitions once, unless a filter is pushed down.
#
# Needs:   Java 17.
# Does:    counts one loaded DataFrame three times while its source grows by a row between them, then three times
#          behind a filter that the source takes over.
# Expected: the same way with and without a filter.
# Seen:    1, 1, 1 without: partitions() is called once; 4, 5, 6 with the filter: it is called for each count.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
import os
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

ROWS = Path(__file__).parent / "rows"


class Reader(DataSourceReader):
    def pushFilters(self, filters):
        return []

    def partitions(self):
        return [InputPartition(int(ROWS.read_text()))]

    def read(self, partition):
        yield from ((number,) for number in range(partition.value))


class Growing(DataSource):
    @classmethod
    def name(cls):
        return "growing"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader()
PYTHON
cat >"$dir/session.py" <<'PYTHON'
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.python.filterPushdown.enabled", "true")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
PYTHON
"$dir/venv/bin/python" - "$dir" 2>"$dir/log" <<'PYTHON'
import sys

from session import spark
from source import ROWS, Growing

spark.dataSource.register(Growing)
frame = spark.read.format("growing").load()


def count(frame, rows):
    ROWS.write_text(str(rows))
    return frame.count()


plain = [count(frame, rows) for rows in (1, 2, 3)]
filtered = [count(frame.filter("n >= 0"), rows) for rows in (4, 5, 6)]
print(f"without a filter {plain}, with one {filtered}")
spark.stop()
sys.exit(plain != [1, 1, 1] or filtered != [4, 5, 6])
PYTHON
