"""A way to a daemon: its socket (``socket_reach``), or HTTP, there or at a broker (``http_reach``).

A reach asks one query at a time, in the caller's thread or on its loop, and cuts a change of many messages
into queries.
"""

from __future__ import annotations

import time
from typing import Protocol

from tidegate.plugin.api.changes import Answer, Course, Positions, Query, Total
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.moments import fixed_range


class Cutting(Protocol):
    """The cutting of a change into queries."""

    def change(self, query: Query, positions: Positions, total: Total) -> Course:
        """Ask `query` of all positions."""
        ...

    def change_of_due(self, query: Query, due: str | None, total: Total) -> Course:
        """Ask `query` of all waiting messages due in `due`; None: of all waiting ones."""
        ...


class Reach(Cutting, Protocol):
    """A way that blocks."""

    def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        ...

    def close(self) -> None:
        """End its connections."""
        ...


class AsyncReach(Cutting, Protocol):
    """A way on an event loop."""

    async def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        ...

    async def close(self) -> None:
        """End its connections."""
        ...


def fixed(due: str | None) -> str | None:
    """A range with the same meaning in each of several requests. Raises ``UserError``."""
    try:
        return None if due is None else fixed_range(due, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UserError(str(error)) from None
