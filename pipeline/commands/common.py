"""Shared by the pipeline's commands: Spark settings, and the start and result of a job."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.job.launch import launch
from tidegate.pipeline.job.request import HERE, LOCAL, SPARK, Request, SparkSettings
from tidegate.pipeline.job.view import View, make_view

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]

_BEGIN_BYTES = 1 << 16
_WIDE = 10_000
start_job: Callable[[Request, View], tuple[dict[str, Any], int]] = launch


@dataclass(frozen=True, kw_only=True)
class Spark:
    """Spark's place and settings: a group of ``plugin.commands.groups``."""

    master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark runs: local[*] is this machine, spark://HOST:7077 a cluster.",
            show_default=LOCAL,
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; again for more."),
    ] = None
    package: Annotated[
        Path | None, typer.Option(help="What tidegate spark-package made, for workers on other machines.")
    ] = None
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", help="A file that the workers need, such as a token's; repeatable."),
    ] = None

    def settings(self) -> SparkSettings:
        """The settings as typed, checked. Raises ``OptionError``."""
        settings = {}
        for one in self.conf or []:
            name, equals, value = one.partition("=")
            if not equals or not name.startswith("spark."):
                raise OptionError(f"--conf {one[:80]}: write it as spark.NAME=VALUE")
            settings[name] = value
        files = self.file or []
        for path in files:
            if not path.is_file():
                raise OptionError(f"--file {path}: there is no such file")
        if self.package is not None and not self.package.is_file():
            raise OptionError(f"there is no package {self.package}: make it with tidegate spark-package")
        return SparkSettings(
            master=self.master or LOCAL,
            asked_for=bool(self.master or settings or self.package),
            conf=settings,
            package=None if self.package is None else str(self.package),
            files=tuple(str(path) for path in files),
        )


def run_job(command: str, options: dict[str, Any], spark: SparkSettings) -> tuple[dict[str, Any], int]:
    """Run a job with progress on the terminal; (its result with ``seconds``, the exit code)."""
    began_s = time.monotonic()
    with make_view() as view:
        result, exit_code = start_job(Request(command=command, options=options, spark=spark), view)
    result.setdefault("seconds", round(time.monotonic() - began_s, 3))
    return result, exit_code


def print_json(result: dict[str, Any]) -> None:
    """Print the result on standard output."""
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))


def engine_words(result: dict[str, Any]) -> str:
    """The engine that did the work, for output behind the duration."""
    return {SPARK: ", on Spark", HERE: ", without Spark"}.get(str(result.get("engine")), "")


def print_table(table: Table) -> None:
    """Print a table whole, even into a pipe, or for another program, with 80 columns."""
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=_WIDE)).maximum
    (console if needed <= console.width else Console(width=needed)).print(table)


def absolute(where: str) -> str:
    """A local path in full: the job and Spark's workers may run elsewhere."""
    return where if "://" in where else str(Path(where).absolute())


def check_there(what: str, where: str, spark: SparkSettings) -> None:
    """Report a missing path before Spark does; only for a path that is surely on this machine."""
    local = spark.master.startswith("local") and "spark.hadoop.fs.defaultFS" not in spark.conf
    if local and "://" not in where and not set(where) & set("*?[]{}\\") and not Path(where).exists():
        raise OptionError(f"{what}: there is nothing at {where}")


def check_rows(what: str, where: str, *, may_be_none: bool = False) -> None:
    """Report a local file without rows before Spark starts, if its beginning shows that.

    may_be_none: a header alone will do.
    """
    path = Path(where)
    if "://" in where or not path.is_file():
        return
    with path.open("rb") as file:
        begin = file.read(_BEGIN_BYTES)
    lines = [line for line in begin.splitlines() if line.strip()]
    if not begin:
        raise OptionError(f"{what}: {where} is empty")
    if path.suffix.lower() == ".csv" and not may_be_none and len(begin) < _BEGIN_BYTES and len(lines) < 2:
        raise OptionError(f"{what}: there are no rows in {where}")


def check_writable(report: Path) -> None:
    """Check before the work."""
    try:
        report.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"cannot write to {report}: {error.strerror or error}; choose another --report"
        ) from error
    if not os.access(report, os.W_OK):
        raise OptionError(f"no permission to write to {report}: choose another --report")
