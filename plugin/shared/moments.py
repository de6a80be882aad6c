"""Times and spans as users write them: milliseconds since 1970, ISO 8601, or a duration from now.

Invariant: no number is read in another unit than its own: a time in 1970 is refused, and the error names the
probable unit.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidegate.plugin.shared.durations import milliseconds

RANGE_HELP = "FROM..TO, each 10m (from now), 2026-12-24T18:00:00Z, or ms since 1970; one may be left out."
_NUMBER = re.compile(r"-?\d{1,30}", re.ASCII)
AT_MS_MIN = 100_000_000_000
"""March 1973: an earlier time is one in seconds."""
_MS_MAX = (1 << 63) - 1
AT_MS_MAX = 253_402_300_799_999
"""The end of the year 9999: no message can wait longer."""


AT_ONCE_MS = 0
"""The time of a released message, due by any clock."""
OVERDUE_MS = 1_000
"""Below it a message is on its way."""


def known_due_ms(next_due_ms: int | None, now_ms: int) -> int | None:
    """``next_due_ms``; now for a released message, which has been due since an unknown time."""
    return now_ms if next_due_ms == AT_ONCE_MS else next_due_ms


def checked_ms(value: int) -> int:
    """A time for a message to be due at, in ms since 1970. Raises ``ValueError``."""
    if value > AT_MS_MAX:
        raise ValueError(f"{value} is after the year 9999: no message can wait so long")
    return moment(str(value), 0)


def moment(text: str, now_ms: int) -> int:
    """The time in ``text``, in ms since 1970. Raises ``ValueError``."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        value = int(stripped)
        if value < AT_MS_MIN:
            raise ValueError(
                f"{stripped} ms is {'before 1970' if value < 0 else 'in the early 1970s'}: give milliseconds "
                "since 1970 (13 digits today), or a duration such as 10m"
            )
        if value > _MS_MAX:
            raise ValueError(f"{stripped} is later than any time")
        return value
    try:
        return now_ms + milliseconds(stripped)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(stripped)
    except ValueError as error:
        raise ValueError(
            f"{stripped!r} is no time: write a duration from now such as 10m, a time such as "
            "2026-12-24T18:00:00Z, or milliseconds since 1970"
        ) from error
    value = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)
    return moment(str(value), now_ms)


def due_range(text: str, now_ms: int) -> tuple[int | None, int | None]:
    """Both ends of FROM..TO; None for a missing end. Raises ``ValueError``."""
    start, dots, stop = text.partition("..")
    if not dots or not (start.strip() or stop.strip()):
        raise ValueError(f"{text!r} is no range: write FROM..TO, as in 10m..1h")
    from_ms, to_ms = (moment(one, now_ms) if one.strip() else None for one in (start, stop))
    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise ValueError(f"{text!r} ends before it begins: turn it round")
    return from_ms, to_ms


def fixed_range(text: str, now_ms: int) -> str:
    """FROM..TO as a range with the same meaning at any time. Raises ``ValueError``."""
    return "..".join("" if one is None else str(one) for one in due_range(text, now_ms))


def due_utc(time_ms: int, zone: str = "") -> str:
    """A time at which a message is due, in a form for people. zone: behind it, unless it is due at once."""
    return "at once" if time_ms == AT_ONCE_MS else utc(time_ms) + zone


def utc(time_ms: int) -> str:
    """A time in a form for people."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
