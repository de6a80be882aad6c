"""How to get what only some commands need.

Tidegate is in no package index: it comes from its wheel, or from its checkout.
"""

from __future__ import annotations


def how_to_get(extra: str | None) -> str:
    """What to run for the packages of an extra; None: for those that every command needs."""
    part = "" if extra is None else f"[{extra}]"
    return (
        f"pip install 'WHEEL{part}' with the path of Tidegate's wheel for WHEEL, "
        f"or pip install -e '.{part}' in its checkout"
    )
