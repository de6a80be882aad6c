"""Numbers of things for people: ``1 fault``, ``2,000 faults``."""

from __future__ import annotations

_VERBS = {"are": "is", "have": "has"}


def counted(number: int, noun: str, verb: str = "") -> str:
    """The number with its noun, and with a verb, given in the plural: ``1 entry waits``."""
    if number == 1:
        words = [noun, verb and _VERBS.get(verb, f"{verb}s")]
    else:
        words = [f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s", verb]
    return " ".join([f"{number:,}", *filter(None, words)])
