"""The reference: commands, settings of the daemon and its metrics, as the code itself states them."""

from __future__ import annotations

import copy
import importlib
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import typer

from tidegate.plugin import command_line
from tidegate.plugin.daemon.settings import Settings
from tidegate.plugin.telemetry.metrics import BypassGauge, Gauges, Metrics, SubscriptionGauges

ROOT = Path(__file__).resolve().parents[2]
_COLUMNS = 100


def pages() -> dict[str, str]:
    """Markdown by name of page."""
    return {"commands": _commands(), "settings": _settings(), "metrics": _metrics()}


def command_tree() -> Any:
    """The command ``tidegate`` with all of its commands."""
    # The command line's own, before it knows any command.
    app = copy.copy(command_line.app)
    app.registered_commands, app.registered_groups = [], []
    for module in dict.fromkeys(each.module for each in command_line._COMMANDS.values()):
        importlib.import_module(module).register(app)
    return typer.main.get_command(app)


def _commands() -> str:
    parts = ["# Commands\n\nEach as `--help` prints it.\n"]
    for name, command in sorted(command_tree().commands.items()):
        parts += _help(f"tidegate {name}", command, level=2)
    return "\n".join(parts)


def _help(name: str, command: Any, level: int) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True, terminal_width=_COLUMNS)
    parts = [f"{'#' * level} `{name}`\n", f"```text\n{command.get_help(context).strip()}\n```\n"]
    for under, each in sorted(getattr(command, "commands", {}).items()):
        parts += _help(f"{name} {under}", each, level + 1)
    return parts


def _settings() -> str:
    """A row a setting: default and range of the code, the meaning of the operations page."""
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    meanings = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", operations, re.MULTILINE))
    rows = []
    for each in fields(Settings):
        default = (
            "required" if each.default is MISSING else "–" if each.default is None else f"`{each.default}`"
        )
        meaning = re.sub(r"\]\((?!#)([^)]+)\)", r"](../\1)", meanings.get(each.name, ""))
        meaning = meaning.replace("](#", "](../operations.md#")
        rows.append(f"| `{each.name}` | {default} | {_range(each.metadata['reader'])} | {meaning} |")
    return (
        "# Settings of the daemon\n\nA setting has one name everywhere: `name` in the TOML file of"
        " `--config`, `TIDEGATE_NAME` in the environment; some also are flags of `tidegate serve`."
        " Flags override the environment, the environment overrides the file.\n\n"
        "| setting | default | value | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


def _range(reader: Any) -> str:
    """The range of a setting, from its reader's refusal of a senseless value."""
    try:
        reader(object())
    except (ValueError, TypeError) as error:
        return str(error).removeprefix("must be ").replace("|", "or")
    return ""


def _metrics() -> str:
    values: dict[str, Any] = {each.name: 0 for each in fields(Gauges)}
    subscription = SubscriptionGauges(
        "persistent://tenant/namespace/topic", "subscription", 0, 0, 0, None, 0, 1_000
    )
    values |= {
        "series": [subscription],
        "bypassed": [BypassGauge("broker", subscription.topic, "subscription", 0, "")],
    }
    text = Metrics(lambda: "VERSION").exposition(Gauges(**values)).decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    rows = [
        f"| `{name}` | {kinds.get(name, '')} | {documentation} |"
        for name, documentation in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE)
        if name.startswith("tidegate_") and not name.endswith("_created")
    ]
    return (
        "# Metrics\n\n`/metrics` of the daemon. `process_*` come beside them, as from every Prometheus"
        " client.\n\n"
        "| name | type | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
    )
