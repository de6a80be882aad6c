"""``tidegate spark-package``: an archive with everything that a cluster's workers need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidegate.pipeline.commands import common
from tidegate.pipeline.job.parts import check_packages


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("spark-package", epilog="Example: tidegate spark-package --out dist")(spark_package)


def spark_package(
    out: Annotated[
        Path, typer.Option(help="Where the archive and the script go; made if it is not there.")
    ] = Path("run/spark"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the contents, and pack nothing.")] = False,
    json_output: common.Json = False,
) -> None:
    """Make the archive that Spark ships to its workers.

    Tidegate and what it needs, as installed here.
    """
    check_packages()
    from tidegate.pipeline.job.package import (  # noqa: PLC0415 --help needs no extra
        UNPACKED_AS,
        closure_versions,
        make_package,
        platform_words,
    )

    if dry_run:
        distributions = closure_versions()
        if json_output:
            common.print_json({"dry_run": True, "out": str(out), "distributions": distributions})
        else:
            typer.echo(f"to {out}, for {platform_words()}: {', '.join(distributions)}")
        return
    was_there = out.is_dir()
    made = make_package(out)
    if json_output:
        common.print_json(
            {
                "made_directory": not was_there,
                "archive": str(made.archive),
                "script": str(made.script),
                "size_bytes": made.size_bytes,
                "for": platform_words(),
                "distributions": made.distributions,
            }
        )
        return
    if not was_there:
        typer.echo(f"made the directory {out}")
    typer.echo(f"{made.archive}: {made.size_bytes / 1e6:.0f} MB, for {platform_words()}")
    typer.echo("tidegate COMMAND … --master spark://HOST:7077 --package " + str(made.archive))
    typer.echo(
        f"spark-submit --master … --archives {made.archive}#{UNPACKED_AS} "
        f"--conf spark.executorEnv.PYTHONPATH={UNPACKED_AS} {made.script} COMMAND …"
    )
