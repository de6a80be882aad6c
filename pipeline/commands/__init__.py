"""The pipeline's commands: parsing, checks and output. Spark runs in the job's process, never here."""

from __future__ import annotations

import typer


def register_all(app: typer.Typer) -> None:
    """Add every command whose job may run inside spark-submit."""
    from tidegate.pipeline.commands import audit, rebuild, tune, verify  # noqa: PLC0415

    for module in (audit, rebuild, tune, verify):
        module.register(app)
