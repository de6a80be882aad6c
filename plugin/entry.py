"""Where the console script ``tidegate`` begins: Ctrl-C is answered before anything else is loaded."""

from __future__ import annotations

from tidegate.plugin.interrupt import end_at_once


def main() -> None:
    """The console script ``tidegate``."""
    end_at_once()
    from tidegate.plugin import cli  # noqa: PLC0415

    cli.main()
