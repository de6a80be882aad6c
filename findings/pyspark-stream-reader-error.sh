#!/usr/bin/env bash
# PySpark 4.3.0: an error that streamReader() of a Python data source raises comes out as an UnboundLocalError.
#
# Needs:   Java 17.
# Does:    starts a stream from a source whose streamReader() raises ValueError("no such topic").
# Expected: the query fails with that ValueError.
# Seen:    the query's error ends in "UnboundLocalError: cannot access local variable 'reader'": Spark stops a reader
#          that was never made. The ValueError is further up in the traceback.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pandas==2.3.3 pyarrow==26.0.1
export PYSPARK_PYTHON=$dir/venv/bin/python SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
cat >"$dir/source.py" <<'PYTHON'
from pyspark.sql.datasource import DataSource


class Refusing(DataSource):
    @classmethod
    def name(cls):
        return "refusing"

    def schema(self):
        return "n bigint"

    def streamReader(self, schema):
        raise ValueError("no such topic")
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
from source import Refusing

spark.dataSource.register(Refusing)
query = (
    spark.readStream.format("refusing").load()
    .writeStream.format("noop").trigger(availableNow=True)
    .option("checkpointLocation", f"{sys.argv[1]}/checkpoint")
    .start()
)
try:
    query.awaitTermination(300)
    seen = "no error"
except Exception as error:
    seen = str(error)
lines = [line.strip() for line in seen.splitlines()]
errors = [line for line in lines if line.startswith(("ValueError", "UnboundLocalError"))]
print(f"errors named, in order: {errors}; first line: {lines[0]}")
spark.stop()
sys.exit(not errors or not errors[-1].startswith("UnboundLocalError"))
PYTHON
