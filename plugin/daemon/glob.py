"""Patterns of names in which ``*`` stands for anything, matched without backtracking: each part between stars
at its first match, because if the rest fits at all, it fits after that. ``fnmatch`` and regular expressions
try every place, on the loop that serves the brokers.

Example: ``a*b*c`` in ``aXbYbZc``: ``a`` at the begin, the first ``b`` after it, ``c`` at the end.
"""

from __future__ import annotations

STAR = "*"


class Glob:
    """A pattern; every character other than ``*`` stands for itself."""

    def __init__(self, pattern: str) -> None:
        first, *rest = pattern.split(STAR)
        self._literal = not rest
        self._first = first
        self._last = rest.pop() if rest else ""
        self._middle = [part for part in rest if part]

    def matches(self, name: str) -> bool:
        """True if the whole of ``name`` fits."""
        if self._literal:
            return name == self._first
        at, end = len(self._first), len(name) - len(self._last)
        if at > end or not name.startswith(self._first) or not name.endswith(self._last):
            return False
        for part in self._middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True
