"""The commands and their arguments. Each command has its own module, imported when it runs.

Invariants: a typing error becomes one line on standard error and an exit code; a command with a module that
cannot be imported does not break the others; the list of commands imports none of them.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Annotated, Any, NamedTuple

import typer

from tidegate.plugin.shared.interrupt import INTERRUPTED, end_at_once, raise_again
from tidegate.plugin.shared.shown import one_line

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tidegate serve --data /var/lib/tidegate --socket /run/tidegate/tidegate.sock",
)
# Typer brings its own click or uses the installed one: only its exported class is surely right.
_ClickError: type[Exception] = next(
    one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException"
)


_COMPLETES = "_TIDEGATE_COMPLETE"
"""Set by a shell's script that completes typed words."""


class _Command(NamedTuple):
    """A command's module, and its first line of help, which the list of commands shows without importing it.

    module: has a function register(app) that adds its commands. summary: fits a terminal of 80 columns, where
    the list would cut it.
    """

    module: str
    summary: str


# By name only: a command's module is imported on demand.
_COMMANDS = {
    "serve": _Command(
        "tidegate.plugin.commands.serve", "Run the daemon beside a broker until SIGTERM or Ctrl-C."
    ),
    "status": _Command("tidegate.plugin.commands.status", "Show what the daemon holds, the worst first."),
    "fleet": _Command("tidegate.plugin.commands.fleet", "Show the daemons of all brokers of a cluster."),
    "doctor": _Command("tidegate.plugin.commands.doctor", "Look whether all is well, and say what to do."),
    "attach": _Command("tidegate.plugin.commands.attach", "Let the brokers of PULSAR_HOME use Tidegate."),
    "detach": _Command("tidegate.plugin.commands.attach", "Take Tidegate out of PULSAR_HOME."),
    "shim": _Command("tidegate.plugin.commands.shim", "Put the files that a broker needs into DIRECTORY."),
    "detach-all": _Command(
        "tidegate.plugin.commands.detach_all", "Take a running cluster back to Pulsar's own tracker."
    ),
    "demo": _Command(
        "tidegate.plugin.commands.demo", "Show that messages come when due, through two kill -9s."
    ),
    "drill": _Command(
        "tidegate.plugin.commands.drill", "Inject faults into broker and daemon, and judge what came."
    ),
    "standalone": _Command(
        "tidegate.plugin.commands.standalone", "Run a broker with Tidegate, to try programs on."
    ),
    "setup": _Command("tidegate.plugin.commands.setup", "Fetch Apache Pulsar, once, and print where it is."),
    "width": _Command("tidegate.plugin.commands.width", "Show or set the width of a subscription's slices."),
    "tide": _Command("tidegate.plugin.commands.tide", "Count waiting messages by due time."),
    "list": _Command("tidegate.plugin.commands.waiting", "List the messages that wait, in due order."),
    "show": _Command("tidegate.plugin.commands.waiting", "Show the state of one message."),
    "cancel": _Command("tidegate.plugin.commands.cancel", "Take messages back before they are delivered."),
    "release": _Command("tidegate.plugin.commands.release", "Have messages delivered now."),
    "reschedule": _Command("tidegate.plugin.commands.reschedule", "Have messages delivered at another time."),
    "pause": _Command("tidegate.plugin.commands.pace", "Let no delayed message leave until tidegate resume."),
    "resume": _Command("tidegate.plugin.commands.pace", "Let messages leave as they come due again."),
    "pace": _Command(
        "tidegate.plugin.commands.pace", "Show or set the pace at which delayed messages leave."
    ),
    "policy": _Command(
        "tidegate.plugin.commands.policy", "Show and change rules: levels, a quota, index logs."
    ),
    "audit": _Command("tidegate.pipeline.commands.audit", "Count lost, early, late and repeated messages."),
    "tune": _Command("tidegate.pipeline.commands.tune", "Recommend a slice width from a trace."),
    "rebuild": _Command(
        "tidegate.pipeline.commands.rebuild", "Make a subscription's index from its topic's backlog."
    ),
    "verify": _Command("tidegate.pipeline.commands.verify", "Compare an index with its topic."),
    "ledgers": _Command(
        "tidegate.pipeline.commands.ledgers", "Show which ledgers waiting messages keep, and their space."
    ),
    "metrics": _Command(
        "tidegate.plugin.commands.metrics", "Print alert rules for Prometheus, a dashboard for Grafana."
    ),
    "completion": _Command(
        "tidegate.plugin.commands.completion", "Print a script that completes commands and options."
    ),
    "spark-package": _Command(
        "tidegate.pipeline.commands.spark_package", "Make the archive that Spark ships to its workers."
    ),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata  # noqa: PLC0415 takes as long as all the rest

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
    """Add the requested command; if that is unclear (``--help``, a typing error), add all, by name."""
    asked = _COMMANDS.get(arguments[0]) if arguments else None
    if asked is not None:
        importlib.import_module(asked.module).register(app)
        return
    for name, command in _COMMANDS.items():
        app.command(name, help=command.summary)(_unreached)


def _typed() -> list[str]:
    from tidegate.plugin.commands.completion import typed  # noqa: PLC0415 only a shell asks so

    return typed(os.environ)


def _unreached() -> None:
    """The body of an unrequested command."""


def _usage_line(error: Any) -> str:
    """The typing error and where to look, as one line."""
    # Some versions of Typer also name the kind of error.
    said = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is not None:
        command = context.command_path
    else:  # an option without its value: the parser knows no context
        command = f"tidegate {sys.argv[1]}" if sys.argv[1] in _COMMANDS else "tidegate"
    return f"{said}; see `{command} --help`"


def run(arguments: list[str]) -> int:
    """Run the command in `arguments`; its exit code. Prints a typing error as one line.

    Raises ``UserError``, ModuleNotFoundError and OSError, as the command does.
    """
    try:
        _register(_typed() if _COMPLETES in os.environ else arguments)
        raising = raise_again()
        try:
            code = app(arguments, prog_name="tidegate", standalone_mode=False)
        finally:
            if raising:
                end_at_once()
        if sys.stdout is not None:  # the parent process may have closed it
            sys.stdout.flush()
        return int(code or 0)
    except SystemExit as ended:
        # Typer makes 1 of it, which reads as a verdict.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    except typer.Abort:
        return INTERRUPTED
    except _ClickError as error:
        print(f"tidegate: {one_line(_usage_line(error))}", file=sys.stderr)
        return 2
