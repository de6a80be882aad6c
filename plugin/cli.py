"""The console script ``tidegate`` (``entry`` starts it).

A daemon must listen soon after a crash, and Typer takes a sixth of that time to read a command line: so this
module reads valid flags of ``serve`` itself, and leaves everything else to Typer.

Invariants: a ``UserError`` becomes one line on standard error and an exit code, never a traceback; this
module imports nothing that some command does not need.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from pathlib import Path

from tidegate.plugin.errors import ConfigError, UserError
from tidegate.plugin.shared.environment import refuse_misspelt, require_linux, unknown
from tidegate.plugin.shared.extras import how_to_get
from tidegate.plugin.shared.interrupt import INTERRUPTED, end_at_once
from tidegate.plugin.shared.shown import one_line, without_passwords

SERVE_FLAGS = {
    "--data": Path,
    "--socket": Path,
    "--http": str,
    "--http-token-file": Path,
    "--config": Path,
    "--log-format": str,
    "--log-level": str,
}
# Commands that need more than the daemon does, and the extra with their packages.
_EXTRAS = dict.fromkeys(("demo", "drill"), "demo") | dict.fromkeys(
    ("audit", "tune", "rebuild", "verify", "spark-package"), "spark"
)

# 1 is a verdict: `verify` found a difference of index and topic, `audit` a loss.
NOT_INSTALLED = 2
_WITH_VERDICT = ("audit", "rebuild", "verify")
_NO_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_READER_GONE = 128 + signal.SIGPIPE
"""As in shells, for a program ended by the signal; 1 would be a verdict."""


def serve_flags(arguments: list[str]) -> dict[str, Path | str] | None:
    """The settings in the arguments of ``serve``, by name; None if Typer has to look at them."""
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
    """Raise ``ConfigError`` for an empty argument, such as an unset variable of a script.

    As a path it would mean the current directory.
    """
    before = "tidegate"
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not argument or (name.startswith("--") and equals and not value):
            raise ConfigError(f"what follows {name or before} is empty: give a value, or leave it out")
        before = argument


def _tell_unknown(command: str) -> None:
    """Warn in one line of unknown variables that begin like a setting; ``serve`` logs them itself."""
    names = unknown(os.environ)
    if names and command != "serve" and sys.stderr is not None:
        said = f"tidegate: not known, and ignored, in the environment: {', '.join(names)}"
        with contextlib.suppress(OSError):
            print(one_line(said), file=sys.stderr)


def _run(arguments: list[str]) -> int:
    """Run the command of the arguments; the exit code."""
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
    """The missing package and how to install it, as one line."""
    command = sys.argv[1]
    return f"{command} needs {error.name}, which is not installed: run {how_to_get(_EXTRAS.get(command))}"


def _no_verdict(exit_code: int) -> int:
    """An error's exit code, never one that reads as a verdict of the command."""
    return max(exit_code, 2) if sys.argv[1] in _WITH_VERDICT else exit_code


def _drop_output() -> None:
    """Discard buffered output: at exit Python would write it again, and fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 only to see whether it fails
    except OSError:
        return False
    return True


def _nameless(error: OSError) -> str:
    """One line for an error that names no file; raises the error if it is a bug."""
    if error.errno in _NO_OUTPUT:
        _drop_output()
        return f"cannot write what there is to say: {error.strerror}"
    if error.errno == errno.ENOENT and not _has_directory():
        return "the directory that this is run in is gone: change to another one"
    raise error


def main() -> None:
    """Run the command line, and exit."""
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
        # The reader has seen enough, as `head` has.
        _drop_output()
        sys.exit(_READER_GONE)
    except UnicodeEncodeError as error:
        # Bytes that are not UTF-8 arrive as lone surrogates, which neither frames nor terminals accept.
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
