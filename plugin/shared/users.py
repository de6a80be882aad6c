"""Users of this machine by name."""

from __future__ import annotations

import pwd


def user_name(uid: int) -> str:
    """The name of a user; the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
