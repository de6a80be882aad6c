"""Names and messages in the form people see: on a terminal, in a log line, as a metric's label.

Clients choose names, perhaps with escape codes, line ends and characters that turn the writing direction.
Invariants: the result is one line of printable characters; two different names never look alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def shown(name: str) -> str:
    r"""``name`` with Python's escapes for unprintable characters, as in ``\x1b``; backslashes are doubled."""
    return one_line(name.replace("\\", "\\\\"))


def one_line(message: str) -> str:
    """A message that may hold names: like ``shown``, but keeps backslashes, which may be escapes already."""
    if message.isprintable():
        return message
    return "".join(one if one.isprintable() else _escape(one) for one in message)


_PASSWORD = re.compile(r"(?<=://)([^\s/:@]*):[^\s/]*@")


def without_passwords(message: str) -> str:
    """The message without the passwords of its URLs."""
    return _PASSWORD.sub(r"\1:…@", message)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def lines(text: str) -> str:
    """A text of several lines, such as a traceback: keeps the line ends."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def console(*, stderr: bool = False) -> Console:
    """A console that prints plain text: no markup, no emoji codes, no guessed colours."""
    from rich.console import Console  # noqa: PLC0415 takes a tenth of a second

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
