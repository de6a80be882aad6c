"""What the console script ``tidegate`` runs (``entry`` is where it begins).

A daemon is to listen soon after a crash, and reading a command line with Typer takes a sixth of that time: so
the flags of ``serve`` are read here when they are as they should be, and whatever is not is Typer's to tell.

Invariants: a ``UserError`` becomes one line on standard error and an exit code, never a traceback; nothing is
imported here that one command does not need.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path

from tidegate.plugin.environment import refuse_misspelt, require_linux, unknown
from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.extras import how_to_get
from tidegate.plugin.interrupt import INTERRUPTED, end_at_once
from tidegate.plugin.shown import one_line, without_passwords

SERVE_FLAGS = {
    "--data": Path,
    "--socket": Path,
    "--http": str,
    "--http-token-file": Path,
    "--config": Path,
    "--log-format": str,
    "--log-level": str,
}
# Commands that need more than the daemon does, and the extra that brings it.
_EXTRAS = dict.fromkeys(("demo", "drill"), "demo") | dict.fromkeys(
    ("audit", "tune", "rebuild", "verify", "spark-package"), "spark"
)

# Not 1, which is a verdict: of `verify` that index and topic differ, of `audit` that something was lost.
NOT_INSTALLED = 2
_WITH_VERDICT = ("audit", "rebuild", "verify")
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def serve_flags(arguments: list[str]) -> dict[str, Path | str] | None:
    """What the arguments of ``serve`` set, by the name of the setting; None for Typer to look at them."""
    flags: dict[str, Path | str] = {}
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if not equals:
            value = next(left, "")
        setting = name[2:].replace("-", "_")
        if name not in SERVE_FLAGS or setting in flags or not value or value.startswith("-"):
            return None
        flags[setting] = SERVE_FLAGS[name](value)
    return flags


def refuse_empty(arguments: list[str]) -> None:
    """Raise ``ConfigError`` for an empty argument, as of a variable that a script has not set.

    As a path it would be the directory that the command is run in.
    """
    before = "tidegate"
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not argument or (name.startswith("--") and equals and not value):
            raise ConfigError(f"what follows {name or before} is empty: give a value, or leave it out")
        before = argument


def _tell_unknown(command: str) -> None:
    """One line for the variables that begin like a setting and are none; ``serve`` has them in its log."""
    names = unknown(os.environ)
    if names and command != "serve" and sys.stderr is not None:
        said = f"tidegate: not known, and ignored, in the environment: {', '.join(names)}"
        with contextlib.suppress(OSError):
            print(one_line(said), file=sys.stderr)


def _run(arguments: list[str]) -> int:
    """Run what the arguments ask for; the exit code."""
    refuse_empty(arguments)
    if not {"--help", "-h", "--version"}.intersection(arguments):
        require_linux(sys.platform)
        refuse_misspelt(os.environ)
        _tell_unknown(arguments[0])
    flags = serve_flags(arguments[1:]) if arguments[0] == "serve" else None
    if flags is None:
        from tidegate.plugin import command_line  # noqa: PLC0415

        return command_line.run(arguments)
    from tidegate.plugin.commands.daemon import run_daemon  # noqa: PLC0415

    config = flags.pop("config", None)
    run_daemon(flags, None if config is None else Path(config))
    return 0


def _not_installed(error: ModuleNotFoundError) -> str:
    """Which package is missing, and how to get it, as one line."""
    command = sys.argv[1]
    return f"{command} needs {error.name}, which is not installed: run {how_to_get(_EXTRAS.get(command))}"


def _no_verdict(exit_code: int) -> int:
    """The exit code of an error, which must not be taken for what a command has found out."""
    return max(exit_code, 2) if sys.argv[1] in _WITH_VERDICT else exit_code


def _drop_output() -> None:
    """Python would write what it has kept once more at its end, and fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 only to see whether it fails
    except OSError:
        return False
    return True


def _nameless(error: OSError) -> str:
    """What an error that names no file is about, as one line; raises it if it is a bug."""
    if error.errno in _NO_OUTPUT:
        _drop_output()
        return f"cannot write what there is to say: {error.strerror}"
    if error.errno == errno.ENOENT and not _has_directory():
        return "the directory that this is run in is gone: change to another one"
    raise error


def main() -> None:
    """Run what the command line asks for, and exit."""
    end_at_once()  # until a command begins, which may have to clean up
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        sys.exit(_run(sys.argv[1:]))
    except UserError as error:
        print(f"tidegate: {one_line(without_passwords(str(error)))}", file=sys.stderr)
        sys.exit(_no_verdict(error.exit_code))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tidegate"):
            raise
        print(f"tidegate: {_not_installed(error)}", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    except BrokenPipeError:
        # Who read it has seen enough, as head has.
        _drop_output()
        sys.exit(1)
    except UnicodeEncodeError as error:
        # Bytes that are not UTF-8 arrive as lone surrogates, which no frame and no terminal takes.
        print(f"tidegate: {one_line(error.object)} is not UTF-8: correct what was typed", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            print(f"tidegate: {_nameless(error)}", file=sys.stderr)
            sys.exit(_no_verdict(1))
        reason = error.strerror or str(error)
        print(f"tidegate: cannot use {one_line(os.fsdecode(error.filename))}: {reason}", file=sys.stderr)
        sys.exit(_no_verdict(1))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
