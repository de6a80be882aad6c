#!/usr/bin/env bash
# PySpark 4.3.0: trigger(availableNow=True) passes over the default read limit of a source and reads all in one batch.
#
# Needs:   Java 17.
# Does:    streams 1,000 rows from a Python source whose getDefaultReadLimit() is ReadMaxRows(100), with availableNow,
#          until the query ends by itself; then the same with the mixin SupportsTriggerAvailableNow.
# Expected: ten batches of 100 both times, as the file source does with maxFilesPerTrigger; or an error.
# Seen:    without the mixin latestOffset gets ReadAllAvailable: one batch of 1,000. With it ten of 100.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow


class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}

    def getDefaultReadLimit(self):
        return ReadMaxRows(100)

    def latestOffset(self, start, limit):
        return {"at": min(1000, start["at"] + limit.max_rows) if isinstance(limit, ReadMaxRows) else 1000}

    def partitions(self, start, end):
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition):
        yield from ((number,) for number in range(*partition.value))


class Told(Reader, SupportsTriggerAvailableNow):
    def prepareForTriggerAvailableNow(self):
        pass


class Limited(DataSource):
    @classmethod
    def name(cls):
        return "limited"

    def schema(self):
        return "n bigint"

    def streamReader(self, schema):
        return Told() if self.options.get("told") else Reader()
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
from source import Limited

spark.dataSource.register(Limited)
seen = []
for number, options in enumerate(({}, {"told": "true"})):
    query = (
        spark.readStream.format("limited").options(**options).load()
        .writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", f"{sys.argv[1]}/checkpoint{number}")
        .start()
    )
    ended = query.awaitTermination(300)
    rows = [progress.numInputRows for progress in query.recentProgress]
    seen.append((ended, query.exception(), sum(rows), len([one for one in rows if one])))
print(f"(ended, exception, rows, batches) without the mixin {seen[0]}, with it {seen[1]}")
spark.stop()
sys.exit(seen != [(True, None, 1000, 1), (True, None, 1000, 10)])
PYTHON
