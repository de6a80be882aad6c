"""Durations as people write them (``90s``, ``12h``: a number and ms, s, m, h or d), and read them.

Invariant: ``milliseconds`` reads back exactly the value that ``duration`` wrote.
"""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORDS = ((1e3, 1, "ms"), (6e4, 1e3, "s"), (3.6e6, 6e4, "min"), (8.64e7, 3.6e6, "h"))
"""Below a limit in ms: the unit in ms, and its name."""
_ROUNDS_UP = 0.9995
_DURATION = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)", re.ASCII)


def milliseconds(text: str) -> int:
    """The milliseconds in ``text``. Raises ``ValueError`` with an example of the format."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write a number and ms, s, m, h or d, as in 10m")
    return int(found[1]) * _UNITS_MS[found[2]]


def duration(value_ms: int) -> str:
    """``value_ms`` in the largest unit that is exact."""
    unit = next(unit for unit in reversed(_UNITS_MS) if value_ms % _UNITS_MS[unit] == 0)
    return "0s" if value_ms == 0 else f"{value_ms // _UNITS_MS[unit]}{unit}"


def in_words(value_ms: float) -> str:
    """A measured duration, to three digits, in a fitting unit: 12 ms, 3.5 s, 2 h."""
    size = abs(value_ms)
    unit_ms, name = next(
        ((unit_ms, name) for limit_ms, unit_ms, name in _WORDS if size < limit_ms * _ROUNDS_UP),
        (86_400_000, "d"),
    )
    value = value_ms / unit_ms
    return f"{value:,.0f} {name}" if abs(value) >= 99.95 else f"{value:.3g} {name}"
