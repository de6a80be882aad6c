#!/usr/bin/env bash
# PySpark 4.0.5: filters cannot be pushed to a Python data source: pyspark.sql.datasource has no Filter.
#
# Does:    imports DataSource and Filter from pyspark.sql.datasource of 4.0.5.
# Expected: both, or neither: Python data sources came with 4.0.
# Seen:    DataSource is there; Filter raises ImportError, so a source written for 4.1 does not even load.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.0.5
"$dir/venv/bin/python" - <<'PYTHON'
import sys

from pyspark.sql.datasource import DataSource

try:
    from pyspark.sql.datasource import Filter

    seen = "there"
except ImportError as error:
    seen = str(error).split(" (")[0]
print(f"{DataSource.__name__} there; Filter: {seen}")
sys.exit(not seen.startswith("cannot import name 'Filter'"))
PYTHON
