"""Records that are read without Spark, and those that are left to it."""

from __future__ import annotations

import gzip
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidegate.pipeline.job import local_file
from tidegate.pipeline.job.local_file import LocalTable, read_local


def read(path: Path, form: str) -> LocalTable | None:
    return read_local(str(path), form, texts=("name", "key"), numbers=("at", "count"))


def rows(path: Path, form: str) -> list[dict[str, object]]:
    found = read(path, form)
    assert found is not None
    return list(found.table.to_pylist())


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('name,at,more\r\nm1, 5 ,x\r\n\r\n"m,2",1.7e3,\r\n,,y\r\n')
    found = read(path, "csv")
    assert found is not None and found.names == ["name", "at", "more"]
    assert found.table.to_pylist() == [
        {"name": "m1", "at": 5},
        {"name": "m,2", "at": 1_700},
        {"name": None, "at": None},
    ]
    packed = tmp_path / "b.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(packed, "csv") == found.table.to_pylist()


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"name": "m1", "at": 5}\n\n{"name": 7, "at": "6.5", "other": {"a": []}}\n')
    assert rows(path, "json") == [{"name": "m1", "at": 5}, {"name": "7", "at": 6}]


def test_parquet_of_several_files(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(
            pa.table({"name": [f"m{number}"], "at": [float(number)]}), tmp_path / f"{number}.parquet"
        )
    (tmp_path / "_SUCCESS").touch()
    assert [row["at"] for row in rows(tmp_path, "parquet")] == [0, 1, 2]
    assert [row["name"] for row in rows(tmp_path / "*.parquet", "parquet")] == ["m0", "m1", "m2"]


@pytest.mark.parametrize(
    "content",
    [
        "name,at\nm1,soon\n",
        "name,at\nm1,0x1F\n",
        "name,at\nm1,nan\n",
        "name,at\nm1,12345678901234567890\n",
        "name,at\nm1\n",
        "name,at\nm1,5,6\n",
        "name,Name,at\na,b,5\n",
        'name,at\n"a""b",5\n',
        'name,at\na"b,5\n',
        'name,at\n"a\nb",5\n',
        "name,at\na\\,b,5\n",
        "name,at\ra,5\r",
        "\ufeffname,at\na,5\n",
    ],
)
def test_an_unusual_csv_is_left_to_spark(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode())
    assert read(path, "csv") is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        '{"name": 1.0}',
        '{"name": true}',
        '{"at": NaN}',
        '{"at": {}}',
        "[]",
        '{"name": "half',
        '{"name": "\\ud800"}',
    ],
)
def test_unusual_json_is_left_to_spark(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    assert read(path, "json") is None


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5], pa.float32()),
        pa.array([float("nan")]),
        pa.array([1e30]),
        pa.array([1], pa.uint64()),
        pa.array([1], pa.timestamp("ms")),
        pa.array([True]),
    ],
)
def test_unusual_types_are_left_to_spark(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"name": ["m"], "at": column}), path)
    assert read(path, "parquet") is None


def test_what_is_large_or_elsewhere_is_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"name": ["m", "n"]}), path)
    assert read(path, "parquet") is not None
    with patch.object(local_file, "ROWS_MAX", 1):
        assert read(path, "parquet") is None
    with patch.object(local_file, "BYTES_MAX", 10):
        assert read(path, "parquet") is None
    assert read_local(f"file://{path}", "parquet", texts=("name",)) is None
    (tmp_path / "folder").mkdir()
    assert read(tmp_path, "parquet") is None
    assert read(tmp_path / "none.parquet", "parquet") is None
    pq.write_table(pa.table({"other": ["m"]}), tmp_path / "b.parquet")
    assert read(tmp_path / "*.parquet", "parquet") is None
