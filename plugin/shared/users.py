"""Users of this machine by name."""

from __future__ import annotations

import pwd


def user_name(uid: int) -> str:
    """The name of a user; the number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def serving_user(owner: int) -> str:
    """The user to run the daemon, who is the broker's: the home's owner, unless that is root."""
    return "the user that the broker runs as" if owner == 0 else user_name(owner)
