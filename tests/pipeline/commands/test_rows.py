"""A record without rows is refused before Spark starts; a stage that nobody named has no call site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from tidegate.pipeline.commands.common import check_rows, print_table
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.progress import _event


@pytest.mark.parametrize(
    ("content", "may_be_none", "refused"),
    [
        ("", False, "sent: {path} is empty"),
        ("", True, "sent: {path} is empty"),
        ("message_id,sent_at_ms\n", False, "sent: there are no rows in {path}"),
        ("message_id,sent_at_ms\n\n \n", False, "sent: there are no rows in {path}"),
        ("message_id,sent_at_ms\n", True, None),
        ("message_id,sent_at_ms\r\na,1", False, None),
        ("x" * (1 << 16), False, None),
    ],
)
def test_a_file_without_rows(tmp_path: Path, content: str, may_be_none: bool, refused: str | None) -> None:
    path = tmp_path / "sent.csv"
    path.write_text(content, newline="")
    if refused is None:
        check_rows("sent", str(path), may_be_none=may_be_none)
        return
    with pytest.raises(OptionError) as raised:
        check_rows("sent", str(path), may_be_none=may_be_none)
    assert str(raised.value) == refused.format(path=path)


def test_what_is_elsewhere_or_no_file_is_left_to_spark(tmp_path: Path) -> None:
    check_rows("sent", "s3a://bucket/empty.csv")
    check_rows("sent", str(tmp_path))
    path = tmp_path / "one.json"
    path.write_text('{"message_id": "a"}\n')
    check_rows("sent", str(path))


class Stage:
    """A stage as Spark's store has it. described: None without a description."""

    def __init__(self, name: str, described: str | None = None) -> None:
        self._name = name
        self._described = described

    def __getattr__(self, _: str) -> Any:
        return lambda: 0

    def name(self) -> str:
        return self._name

    def description(self) -> Any:
        return self

    def isDefined(self) -> bool:  # noqa: N802 Scala's name
        return self._described is not None

    def get(self) -> str | None:
        return self._described


def test_a_stage_that_nobody_named_has_no_call_site() -> None:
    assert _event(Stage("csv at NativeMethodAccessorImpl.java:0")).name == "Spark: csv"
    assert _event(Stage("reading the trace")).name == "reading the trace"
    made = Stage("$anonfun$withThreadLocalCaptured$7 at FutureTask.java:264")
    assert _event(made).name == "Spark: a part of a query"


def test_an_empty_description_is_none() -> None:
    """The description of one after its block."""
    assert _event(Stage("count at records.py:9", "")).name == "Spark: count"
    assert _event(Stage("count at records.py:9", "reading what was sent")).name == "reading what was sent"


def test_a_table_is_printed_whole_into_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, pad_edge=False)
    names = [f"a rather long heading {number}" for number in range(12)]
    for name in names:
        table.add_column(name)
    table.add_row(*["1"] * len(names))
    print_table(table)
    header, _ = capsys.readouterr().out.splitlines()
    assert all(name in header for name in names)
