"""Numbers of things for people: ``1 fault``, ``2,000 faults``."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """The number with its noun, whose plural takes an s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
