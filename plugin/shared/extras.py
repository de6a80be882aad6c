"""How to install packages that only some commands need.

Tidegate is in no package index: users install its wheel or its checkout.
"""

from __future__ import annotations


def how_to_get(extra: str | None) -> str:
    """The command that installs the packages of an extra; None: those that every command needs."""
    part = "" if extra is None else f"[{extra}]"
    return (
        f"pip install 'WHEEL{part}' with the path of Tidegate's wheel for WHEEL, "
        f"or pip install -e '.{part}' in its checkout"
    )
