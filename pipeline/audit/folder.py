"""The folder of offending messages, which replaces an older audit's.

Invariant: only an audit's own files are removed. Spark empties a folder before it writes there.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidegate.pipeline.errors import OptionError

FIRST_COLUMN = "wrong"
"""Of offending messages, and of no record of sent or received ones."""
DATA = "part-"
BY_SPARK = re.compile(r"part-.+|_SUCCESS|_temporary|\.(part-.+|_SUCCESS)\.crc")


def check_replaceable(spark: SparkSession, where: str) -> None:
    """Raise ``OptionError`` unless ``where`` is absent or holds an audit's output."""
    path = spark._jvm.org.apache.hadoop.fs.Path(where)  # type: ignore[union-attr]
    files = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(path):
        return
    names = [one.getPath().getName() for one in files.listStatus(path)]
    is_ours = files.getFileStatus(path).isDirectory() and all(map(BY_SPARK.fullmatch, names))
    if is_ours and any(name.startswith(DATA) for name in names):
        try:
            is_ours = spark.read.parquet(where).columns[0] == FIRST_COLUMN
        except PySparkException:
            is_ours = False
    if not is_ours:
        raise not_ours(where)


def not_ours(where: str) -> OptionError:
    """The refusal to replace others' files."""
    return OptionError(
        f"{where} has what no audit has written, and would be emptied: choose another --offending"
    )
