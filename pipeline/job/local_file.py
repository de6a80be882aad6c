"""A record in files of this machine, small enough to read without Spark.

Invariant: Spark would read the same values. In doubt (an unusual file, type or value) this reads nothing:
Spark then does, or reports the fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

BYTES_MAX = 64 << 20
"""Of all files of a record, and of their contents."""
ROWS_MAX = 1_000_000
_PATTERN = frozenset("*?[]{}\\")
_FLOAT_MAX = float(1 << 53)
_WHOLE = r"^-?[0-9]{1,18}$"
_DECIMAL = r"^-?[0-9]{1,15}(\.[0-9]{1,15})?([eE][+-]?[0-9]{1,2})?$"
_QUOTE_WITHIN = re.compile(rb'[^,\r\n]"[^,\r\n]')
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_MARK = b"\xef\xbb\xbf"


class LocalTable(NamedTuple):
    """A record: the names of all of its columns, and the wanted columns, as int64 or string."""

    names: list[str]
    table: pa.Table


class _LeftToSparkError(Exception):
    """Spark might read another value."""


class _Decimal(str):
    """A number with a point or an exponent in JSON: Spark would write it in its own form."""

    __slots__ = ()


def read_local(
    where: str, form: str, *, texts: Collection[str] = (), numbers: Collection[str] = ()
) -> LocalTable | None:
    """A record in the format ``parquet``, ``csv`` or ``json`` (a line a row); None if Spark has to read it.

    texts, numbers: the wanted columns; the record's become strings, and int64.
    """
    try:
        files = _files(where)
        match form:
            case "csv":
                found = _together(_csv(_content(one), [*texts, *numbers]) for one in files)
            case "json":
                found = _json([_content(one) for one in files], texts, [*texts, *numbers])
            case "parquet":
                _check_rows(files)
                found = _together(_parquet(one, [*texts, *numbers]) for one in files)
            case _:
                return None
        if found.table.num_rows > ROWS_MAX:
            return None
        columns = {
            name: (_texts if name in texts else _numbers)(found.table[name])
            for name in found.table.column_names
        }
        return LocalTable(found.names, pa.table(columns))
    except (_LeftToSparkError, OSError, pa.ArrowException, ValueError, RecursionError):
        return None


def _files(where: str) -> list[Path]:
    """The files of a place as Spark takes them: without names that begin with a dot or an underscore."""
    path = Path(where)
    if "://" in where or set(str(path.parent)) & _PATTERN or set(path.name) & (_PATTERN - {"*"}):
        raise _LeftToSparkError
    if "*" in path.name:
        found = list(path.parent.glob(path.name))
    else:
        found = list(path.iterdir()) if path.is_dir() else [path]
    files = sorted(one for one in found if not one.name.startswith((".", "_")))
    if not files or not all(one.is_file() for one in files):
        raise _LeftToSparkError
    if sum(one.stat().st_size for one in files) > BYTES_MAX:
        raise _LeftToSparkError
    return files


def _content(path: Path) -> bytes:
    with pa.input_stream(str(path), compression="detect") as stream:
        found: bytes = stream.read(BYTES_MAX + 1)
    if len(found) > BYTES_MAX:
        raise _LeftToSparkError
    return found


def _together(parts: Iterable[LocalTable]) -> LocalTable:
    """The rows of all files, which have the same columns."""
    found = list(parts)
    if any(one.names != found[0].names or one.table.schema != found[0].table.schema for one in found):
        raise _LeftToSparkError
    return LocalTable(found[0].names, pa.concat_tables([one.table for one in found]))


def _csv(content: bytes, wanted: list[str]) -> LocalTable:
    strange = (b"\\" in content, b'""' in content, b"\0" in content, content.startswith(_MARK))
    odd = b'"' in content and any(line.count(b'"') % 2 for line in content.split(b"\n"))
    if any(strange) or odd or _QUOTE_WITHIN.search(content) or _LONE_RETURN.search(content):
        raise _LeftToSparkError  # Spark reads escapes and quotes differently
    table = pa_csv.read_csv(
        pa.BufferReader(content),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, pa.string()), null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    return _chosen(table, wanted)


def _json(contents: list[bytes], texts: Collection[str], wanted: list[str]) -> LocalTable:
    rows: list[dict[str, Any]] = []
    for content in contents:
        for line in content.decode("utf-8").split("\n"):
            if line.strip(" \t\r"):
                rows.append(_row(line, texts, wanted))
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in wanted}
    if not rows:
        raise _LeftToSparkError  # it does not tell its columns
    return LocalTable(names, pa.table({name: columns[name] for name in wanted if name in names}))


def _row(line: str, texts: Collection[str], wanted: list[str]) -> dict[str, Any]:
    row = json.loads(line, parse_int=str, parse_float=_Decimal, parse_constant=_strange)
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str | None) for name in wanted):
        raise _LeftToSparkError
    if any(isinstance(row.get(name), _Decimal) for name in texts):
        raise _LeftToSparkError
    return row


def _strange(_: str) -> None:
    raise _LeftToSparkError


def _check_rows(files: list[Path]) -> None:
    if sum(pq.read_metadata(one).num_rows for one in files) > ROWS_MAX:
        raise _LeftToSparkError


def _parquet(path: Path, wanted: list[str]) -> LocalTable:
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        there = [name for name in wanted if name in names]
        return _chosen(file.read(columns=there), wanted)._replace(names=names)


def _chosen(table: pa.Table, wanted: list[str]) -> LocalTable:
    names = table.column_names
    if len({name.lower() for name in names}) < len(names):
        raise _LeftToSparkError  # Spark knows no case
    return LocalTable(names, table.select([name for name in wanted if name in names]))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    right = (pa.types.is_string, pa.types.is_large_string, pa.types.is_signed_integer, pa.types.is_null)
    if not any(one(kind) for one in right):
        raise _LeftToSparkError
    return column.cast(pa.string())


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_signed_integer(kind) or pa.types.is_null(kind):
        return column.cast(pa.int64())
    if pa.types.is_float64(kind):
        return _floored(column)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise _LeftToSparkError
    text = pc.utf8_trim(column.cast(pa.string()), " ")
    text = pc.if_else(pc.equal(text, ""), None, text)
    if _all_match(text, _WHOLE):
        return text.cast(pa.int64())
    if _all_match(text, _DECIMAL):
        return _floored(text.cast(pa.float64()))
    raise _LeftToSparkError


def _all_match(text: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, pattern)).as_py() is not False)


def _floored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers = column.drop_null().to_numpy()
    if not (np.abs(numbers) < _FLOAT_MAX).all():  # also of NaN
        raise _LeftToSparkError
    return pc.floor(column).cast(pa.int64())
