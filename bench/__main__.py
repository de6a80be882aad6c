"""``python -m bench``. Run it from the project's root."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command, if its requirements are installed."""
    try:
        from bench.command import main as command  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("bench", "tidegate")):
            raise
        sys.exit(f"bench: it needs {error.name}, which is not installed: run pip install -e '.[bench]'")
    command()


main()
