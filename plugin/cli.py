"""The command line. Each command's work is in its own module, imported when the command runs.

Invariants: a ``UserError``, and what was typed wrongly, becomes one line on standard error and an exit code,
never a traceback; a command whose module cannot be imported does not keep the others from working.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from typing import Annotated, Any

import typer

from tidegate.plugin.environment import refuse_misspelt, require_linux
from tidegate.plugin.errors import UserError
from tidegate.plugin.shown import one_line

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tidegate serve --data /var/lib/tidegate --socket /run/tidegate/tidegate.sock",
)
# Typer carries a click of its own, or uses the installed one: only what it exports is the right one for sure.
_ClickError: type[Exception] = next(
    one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException"
)
# Commands that need more than the daemon does, and the extra that brings it.
_EXTRAS = dict.fromkeys(("demo", "drill"), "demo") | dict.fromkeys(
    ("audit", "tune", "rebuild", "verify", "spark-package"), "spark"
)
# Where the commands are: each module has a function register(app) that adds its own.
_MODULES = {
    "serve": "tidegate.plugin.commands.serve",
    "status": "tidegate.plugin.commands.status",
    "attach": "tidegate.plugin.commands.attach",
    "detach": "tidegate.plugin.commands.attach",
    "demo": "tidegate.plugin.commands.demo",
    "drill": "tidegate.plugin.commands.drill",
    "setup": "tidegate.plugin.commands.setup",
    "width": "tidegate.plugin.commands.width",
    # By name only: nothing of the pipeline is imported before one of its commands is asked for.
    "audit": "tidegate.pipeline.commands.audit",
    "tune": "tidegate.pipeline.commands.tune",
    "rebuild": "tidegate.pipeline.commands.rebuild",
    "verify": "tidegate.pipeline.commands.verify",
    "spark-package": "tidegate.pipeline.commands.spark_package",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {importlib.metadata.version('tidegate')}")
        raise typer.Exit


@app.callback()
def _tidegate(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Delayed delivery for Apache Pulsar from a time-sliced index."""


def _register(arguments: list[str]) -> None:
    """Add the command that is asked for; all of them when that is not clear (``--help``, a typing error)."""
    command = arguments[0] if arguments else ""
    if command == "--version":
        return
    asked = _MODULES.get(command)
    for name in [asked] if asked else dict.fromkeys(_MODULES.values()):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            if asked:
                raise
            continue
        module.register(app)


def _not_installed(error: ModuleNotFoundError) -> str:
    """Which package is missing, and how to get it, as one line."""
    command = sys.argv[1]
    extra = _EXTRAS.get(command)
    package = "tidegate" if extra is None else f"tidegate[{extra}]"
    return f"{command} needs {error.name}, which is not installed: run pip install '{package}'"


def _usage_line(error: Any) -> str:
    """What was typed wrongly, and where to look, as one line."""
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is not None:
        command = context.command_path
    else:  # an option without its value: the parser knows no context
        command = f"tidegate {sys.argv[1]}" if sys.argv[1] in _MODULES else "tidegate"
    return f"{said}; see `{command} --help`"


def main() -> None:
    """The console script ``tidegate``."""
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        if not {"--help", "-h", "--version"}.intersection(sys.argv):
            require_linux(sys.platform)
            refuse_misspelt(os.environ)
        _register(sys.argv[1:])
        code = app(prog_name="tidegate", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except UserError as error:
        print(f"tidegate: {one_line(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidegate"):
            raise
        print(f"tidegate: {_not_installed(error)}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # Who read it has seen enough, as head has. Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        reason = error.strerror or str(error)
        print(f"tidegate: cannot use {one_line(os.fsdecode(error.filename))}: {reason}", file=sys.stderr)
        sys.exit(1)
    except typer.Abort:
        sys.exit(130)
    except _ClickError as error:
        print(f"tidegate: {one_line(_usage_line(error))}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
