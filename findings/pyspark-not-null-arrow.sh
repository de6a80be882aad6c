#!/usr/bin/env bash
# PySpark 4.3.0: NOT NULL in a source's schema refuses Arrow batches that have no null in them.
#
# Needs:   Java 17.
# Does:    reads pyarrow.RecordBatch.from_pydict({"n": [1, 2]}) from sources with the schema "n bigint not null" and
#          "n bigint".
# Expected: both work: there is no null. Of tuples both do.
# Seen:    with NOT NULL an error says that the schemas differ: from_pydict makes its fields nullable, and Spark
#          compares that flag, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader


class Reader(DataSourceReader):
    def read(self, partition):
        yield pa.RecordBatch.from_pydict({"n": pa.array([1, 2], pa.int64())})


class Batches(DataSource):
    @classmethod
    def name(cls):
        return "batches"

    def schema(self):
        return "n bigint not null" if self.options.get("null") == "no" else "n bigint"

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
from source import Batches

spark.dataSource.register(Batches)
seen = []
for null in ("no", "yes"):
    try:
        rows = spark.read.format("batches").option("null", null).load().collect()
        seen.append([row.n for row in rows])
    except Exception as error:
        seen.append(next((word for word in str(error).split() if "SCHEMA" in word), str(error)[:300]))
print(f"not null: {seen[0]}; nullable: {seen[1]}")
spark.stop()
sys.exit(seen[0] == [1, 2] or "SCHEMA" not in seen[0] or seen[1] != [1, 2])
PYTHON
