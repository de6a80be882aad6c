"""Sizes in bytes as people write them."""

from __future__ import annotations

_UNIT = 1024


def bytes_in_words(value: float) -> str:
    """A size with a fitting unit: 12 B, 3.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < _UNIT:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= _UNIT
    return f"{value:,.1f} TiB"
