"""``tidegate setup``: fetch the Pulsar that the demo, the tests and the benches run, with progress.

The Makefile calls it as ``python -m tidegate.plugin.commands.setup``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from tidegate.plugin.errors import UserError
from tidegate.plugin.local.assembled import VARIABLE, fetch_home, pulsar_home
from tidegate.plugin.local.distribution import PULSAR, Report, default_cache_dir
from tidegate.plugin.shared.environment import refuse_misspelt, require_linux
from tidegate.plugin.shared.shown import one_line

_LINE_EVERY_PERCENT = 25


@contextlib.contextmanager
def progress_reporter(console: Console) -> Iterator[Report]:
    """Shows the progress of ``fetch``: a bar on a terminal, elsewhere (a CI log) a line at each quarter."""
    if not console.is_terminal:
        yield _line_reporter(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield report


def _line_reporter(console: Console) -> Report:
    last: dict[str, int] = {}

    def report(what: str, done: int, total: int) -> None:
        percent = done * 100 // max(total, 1) // _LINE_EVERY_PERCENT * _LINE_EVERY_PERCENT
        if percent > last.get(what, -1):
            last[what] = percent
            console.print(f"{what}: {percent} %", highlight=False, soft_wrap=True)

    return report


def setup(
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Where to keep Pulsar [default: TIDEGATE_CACHE_DIR, or .cache of the checkout].",
        ),
    ] = None,
    pulsar: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help=f"Another Pulsar than {PULSAR.version}, put together from its jars [env: {VARIABLE}].",
        ),
    ] = None,
) -> None:
    """Fetch Apache Pulsar, once, and print where it is.

    It comes from Maven Central.
    """
    environment = dict(os.environ)
    if pulsar is not None:
        environment[VARIABLE] = pulsar
    directory = (cache_dir or default_cache_dir(environment)).absolute()
    home = pulsar_home(environment, directory)
    if not home.is_dir():
        with progress_reporter(Console(stderr=True)) as report:
            fetch_home(directory, environment, report)
    typer.echo(home)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(epilog="Example: tidegate setup --cache-dir /var/cache/tidegate --pulsar 5.0.1")(setup)


def main() -> int:
    """Run ``setup`` alone; returns 0, 1 for a mistake that its line explains, or 130 if interrupted."""
    try:
        require_linux(sys.platform)
        refuse_misspelt(os.environ)
        setup()
    except UserError as error:
        typer.echo(f"tidegate: {one_line(str(error))}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        typer.echo(
            f"tidegate: interrupted; run it again to go on with Pulsar {PULSAR.version} where it stopped",
            err=True,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
