"""Durations as people write them: a number and ms, s, m, h or d, as in ``90s`` or ``12h``.

Invariant: ``milliseconds`` reads back exactly the value that ``duration`` wrote.
"""

from __future__ import annotations

import re

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
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
