"""``tidegate completion``: the script by which a shell completes commands and options.

The script calls ``tidegate`` with ``_TIDEGATE_COMPLETE`` and the words typed so far, in each shell's own
variables, as Typer expects.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Annotated

import typer
from typer import completion as of_typer

PROGRAM = "tidegate"
VARIABLE = "_TIDEGATE_COMPLETE"
_WORDS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Of bash, and of the other shells."""


_OF_FPATH = """
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _tidegate_completion "$@"
fi"""
"""In a directory of fpath zsh runs the script at the first Tab: without this end that completes nothing."""


class Shell(StrEnum):
    """The shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    epilog = "Example: tidegate completion bash > /etc/bash_completion.d/tidegate"
    app.command(epilog=epilog)(completion)


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads the script.")]) -> None:
    """Print a script that completes commands and options.

    bash: source it, or put it into /etc/bash_completion.d. zsh: as _tidegate into a directory of fpath. fish:
    as tidegate.fish into ~/.config/fish/completions.
    """
    of_program = {"prog_name": PROGRAM, "complete_var": VARIABLE}
    script = of_typer.get_completion_script(**of_program, shell=shell.value).strip()  # type: ignore[attr-defined]
    print(script + _OF_FPATH if shell is Shell.ZSH else script)


def typed(environment: Mapping[str, str]) -> list[str]:
    """The words typed after the program's name, for the asking shell; teaches Typer the shells."""
    of_typer.completion_init()  # type: ignore[attr-defined]
    with suppress(ImportError):  # a private module of Typer: a later release may have another
        from typer import _completion_classes as of_shells  # noqa: PLC0415

        # Rich takes words in brackets, as of a default, for markup, and removes them.
        of_shells._sanitize_help_text = lambda text: text
    text = next((environment[name] for name in _WORDS if name in environment), "")
    try:
        return shlex.split(text)[1:]
    except ValueError:  # an unclosed quotation
        return text.split()[1:]
