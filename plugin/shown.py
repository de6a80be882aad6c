"""Names and messages as people are shown them: on a terminal, in a log line, as a metric's label.

A client chooses its names: they may hold escape codes, line ends and what turns the writing direction.
Invariants: what comes out has printable characters only and is one line; two different names never look the
same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def shown(name: str) -> str:
    r"""``name`` with Python's escapes for what is not printable, as in ``\x1b``; a backslash is doubled."""
    return one_line(name.replace("\\", "\\\\"))


def one_line(message: str) -> str:
    """A message that may hold names: as ``shown``, but backslashes stay, as it may hold escapes already."""
    if message.isprintable():
        return message
    return "".join(one if one.isprintable() else _escape(one) for one in message)


_PASSWORD = re.compile(r"(?<=://)([^\s/:@]*):[^\s/]*@")


def without_passwords(message: str) -> str:
    """A message in which no URL has its password."""
    return _PASSWORD.sub(r"\1:…@", message)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def lines(text: str) -> str:
    """A text of several lines, as a traceback: the line ends stay."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def console(*, stderr: bool = False) -> Console:
    """A console that takes what it prints as text: no markup, no emoji codes, no colours it guesses."""
    from rich.console import Console  # noqa: PLC0415 takes a tenth of a second

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
