"""The entry point of the console script ``tidegate``: handles Ctrl-C before it loads anything else."""

from __future__ import annotations

from tidegate.plugin.shared.interrupt import end_at_once


def main() -> None:
    """The console script ``tidegate``."""
    end_at_once()
    from tidegate.plugin import cli  # noqa: PLC0415

    cli.main()
