#!/usr/bin/env bash
# PySpark 4.1.0 and 4.3.0: a Python data source that lists no partitions is asked to read one all the same.
#
# Needs:   Java 17.
# Does:    loads a source with an empty list of partitions, and prints the argument of read.
# Expected: no call of read, as there is nothing to read, or the same argument in both versions.
# Seen:    4.1.0 calls read(None), 4.3.0 read(InputPartition(None)): a reader that uses partition.value ends with
#          AttributeError in 4.1.0 as soon as its data is empty, and with None in 4.3.0.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/source.py" <<'PYTHON'
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceReader

CALLS = Path(__file__).parent / "calls"


class Reader(DataSourceReader):
    def partitions(self):
        return []

    def read(self, partition):
        CALLS.write_text("None" if partition is None else f"InputPartition({partition.value})")
        yield from ()


class Empty(DataSource):
    @classmethod
    def name(cls):
        return "empty"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Reader()
PYTHON
cat >"$dir/session.py" <<'PYTHON'
import pyspark
from pyspark.sql import SparkSession

from source import CALLS, Empty

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Empty)
rows = spark.read.format("empty").load().count()
print(f"PySpark {pyspark.__version__}: {rows} rows, read({CALLS.read_text() if CALLS.exists() else ''})")
spark.stop()
PYTHON
export SPARK_LOCAL_IP=127.0.0.1 PYTHONPATH=$dir
for version in 4.1.0 4.3.0; do
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install -q --disable-pip-version-check "pyspark==$version" pandas==2.3.3 pyarrow==26.0.1
    rm -f "$dir/calls"
    PYSPARK_PYTHON=$dir/venv/bin/python "$dir/venv/bin/python" "$dir/session.py" 2>/dev/null | tee -a "$dir/seen"
    rm -rf "$dir/venv"
done
diff "$dir/seen" - <<'SEEN'
PySpark 4.1.0: 0 rows, read(None)
PySpark 4.3.0: 0 rows, read(InputPartition(None))
SEEN
echo "as found"
