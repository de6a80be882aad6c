"""``tidegate metrics``: alert rules for Prometheus and a dashboard for Grafana."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tidegate.plugin.errors import ConfigError
from tidegate.plugin.telemetry import alerts
from tidegate.plugin.telemetry.dashboard import dashboard

_app = typer.Typer(
    help="Print alert rules for Prometheus, a dashboard for Grafana.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", readable=False, help="Write into FILE instead of printing."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    epilog = "Example: tidegate metrics rules --out /etc/prometheus/tidegate-rules.yml"
    app.add_typer(_app, name="metrics", epilog=epilog)


@_app.command(epilog="Example: tidegate metrics rules --out /etc/prometheus/tidegate-rules.yml")
def rules(
    out: _Out = None,
    job: Annotated[str, typer.Option(help="Job of the daemons in the scrape configuration.")] = alerts.JOB,
    runbook_url: Annotated[
        str, typer.Option(metavar="URL", help="Address of the runbook, to which each alert links.")
    ] = alerts.RUNBOOK,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, which Prometheus reads, too.")] = False,
) -> None:
    """Print the alert rules, a file for rule_files of Prometheus."""
    for name, value in (("--job", job), ("--runbook-url", runbook_url)):
        if not value.isprintable():
            raise ConfigError(f"{name} has unprintable characters: correct it")
    groups = alerts.as_groups(alerts.alerts(job), runbook_url)
    head = "Alert rules of Tidegate, by `tidegate metrics rules`: edit the command's options, not this file."
    _give(json.dumps(groups, indent=2) + "\n" if as_json else alerts.as_yaml(groups, head), out)


@_app.command("dashboard", epilog="Example: tidegate metrics dashboard --out tidegate-dashboard.json")
def print_dashboard(
    out: _Out = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, which it always is.")] = False,  # noqa: ARG001
) -> None:
    """Print the dashboard, for Grafana to import, or for a folder of its provisioning."""
    _give(json.dumps(dashboard(), indent=2) + "\n", out)


def _give(text: str, out: Path | None) -> None:
    """Print, or replace a file as a whole: a reader never finds half of it."""
    if out is None:
        print(text, end="")
        return
    out = out.resolve()
    if out.exists() and not out.is_file():
        raise ConfigError(f"{out} is no file: give --out the path of one")
    part = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(out)
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}; give --out another path") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
