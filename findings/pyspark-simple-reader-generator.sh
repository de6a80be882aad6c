#!/usr/bin/env bash
# PySpark 4.3.0: a generator from SimpleDataSourceStreamReader.read() ends the query.
#
# Needs:   Java 17.
# Does:    streams from a simple reader whose read() returns (rows, end offset), as its type says an Iterator of
#          tuples: once a generator, once iter() of a list.
# Expected: both work.
# Seen:    with the generator the query fails, "cannot pickle 'generator' object": Spark copies the iterator; with
#          iter([...]) the rows come.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


class Reader(SimpleDataSourceStreamReader):
    def __init__(self, kind):
        self.kind = kind

    def initialOffset(self):
        return {"at": 0}

    def read(self, start):
        rows = [(number,) for number in range(start["at"], 5)]
        given = (row for row in rows) if self.kind == "generator" else iter(rows)
        return given, {"at": 5}

    def readBetweenOffsets(self, start, end):
        return iter([(number,) for number in range(start["at"], end["at"])])


class Simple(DataSource):
    @classmethod
    def name(cls):
        return "simple"

    def schema(self):
        return "n bigint"

    def simpleStreamReader(self, schema):
        return Reader(self.options["kind"])
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
from source import Simple

spark.dataSource.register(Simple)
seen = []
for kind in ("generator", "list"):
    query = (
        spark.readStream.format("simple").option("kind", kind).load()
        .writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", f"{sys.argv[1]}/{kind}")
        .start()
    )
    try:
        query.awaitTermination(300)
        seen.append(sum(progress.numInputRows for progress in query.recentProgress))
    except Exception as error:
        seen.append("cannot pickle" if "cannot pickle 'generator' object" in str(error) else str(error))
print(f"generator: {seen[0]}; iterator of a list: {seen[1]}")
spark.stop()
sys.exit(seen != ["cannot pickle", 5])
PYTHON
