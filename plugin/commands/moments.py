"""Times and spans as arguments: a refusal of ``plugin.moments`` becomes an error of usage."""

from __future__ import annotations

import typer

from tidegate.plugin.shared import moments
from tidegate.plugin.shared.moments import RANGE_HELP, due_utc, utc

__all__ = ["RANGE_HELP", "due_range", "due_utc", "fixed_range", "moment", "utc"]


def moment(text: str, now_ms: int) -> int:
    """The time in ``text``, in ms since 1970. Raises ``typer.BadParameter``."""
    try:
        return moments.moment(text, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def due_range(text: str, now_ms: int) -> tuple[int | None, int | None]:
    """Both ends of FROM..TO; None for a missing end. Raises ``typer.BadParameter``."""
    try:
        return moments.due_range(text, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def fixed_range(text: str, now_ms: int) -> str:
    """FROM..TO as a range with the same meaning at any time. Raises ``typer.BadParameter``."""
    try:
        return moments.fixed_range(text, now_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
