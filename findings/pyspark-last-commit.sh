#!/usr/bin/env bash
# PySpark 4.3.0: commit() of a stream's last batch and stop() never come with trigger(availableNow=True).
#
# Needs:   Java 17.
# Does:    streams 300 rows in three batches to the end, with a Python source that writes down its calls.
# Expected: commit for 100, 200 and 300, then stop.
# Seen:    commit for 100 and 200. A source that frees what was read in commit() keeps the last batch.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow

CALLS = Path(__file__).parent / "calls"


def note(text):
    with CALLS.open("a") as calls:
        calls.write(text + "\n")


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self):
        pass

    def initialOffset(self):
        return {"at": 0}

    def getDefaultReadLimit(self):
        return ReadMaxRows(100)

    def latestOffset(self, start, limit):
        return {"at": min(300, start["at"] + limit.max_rows)}

    def partitions(self, start, end):
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition):
        yield from ((number,) for number in range(*partition.value))

    def commit(self, end):
        note(f"commit {end['at']}")

    def stop(self):
        note("stop")


class Noted(DataSource):
    @classmethod
    def name(cls):
        return "noted"

    def schema(self):
        return "n bigint"

    def streamReader(self, schema):
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
import time

from session import spark
from source import CALLS, Noted

spark.dataSource.register(Noted)
query = (
    spark.readStream.format("noted").load()
    .writeStream.format("noop").trigger(availableNow=True)
    .option("checkpointLocation", f"{sys.argv[1]}/checkpoint")
    .start()
)
query.awaitTermination(300)
rows = sum(progress.numInputRows for progress in query.recentProgress)
time.sleep(5)
spark.stop()
seen = CALLS.read_text().splitlines()
print(f"{rows} rows, calls {seen}")
sys.exit(rows != 300 or seen != ["commit 100", "commit 200"])
PYTHON
