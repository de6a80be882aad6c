"""The daemon's Unix socket, with a connection for each query."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tidegate.plugin.api import changes
from tidegate.plugin.api.changes import Answer, Course, Positions, Query, Total
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.moments import due_range
from tidegate.plugin.wire.client import ask_socket


class _SocketCutting:
    def change(self, query: Query, positions: Positions, total: Total) -> Course:
        return changes.change_of(query, positions, total)

    def change_of_due(self, query: Query, due: str | None, total: Total) -> Course:
        return changes.change_of_due(query, *_due(due), total, now_ms=_now_ms)


class SocketReach(_SocketCutting):
    """The daemon's Unix socket, with a connection for each query."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        return ask_socket(self._path, with_times(query), self._timeout_s)

    def close(self) -> None:
        """Nothing to end."""


class AsyncSocketReach(_SocketCutting):
    """The daemon's Unix socket, asked in a thread."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._reach = SocketReach(path, timeout_s)

    async def ask(self, query: Query) -> Answer:
        """Raises ``UserError``."""
        return await asyncio.to_thread(self._reach.ask, query)

    async def close(self) -> None:
        """Nothing to end."""


def with_times(query: Query) -> Query:
    """A query for the socket: a range of times as two numbers. Raises ``UserError``."""
    left = {name: value for name, value in query.items() if name != "due" and value is not None}
    if query.get("due") is None:
        return left
    from_ms, to_ms = _due(query["due"])
    return left | {"from_ms": from_ms, "to_ms": to_ms}


def _due(due: str | None) -> tuple[int | None, int | None]:
    if due is None:
        return None, None
    try:
        return due_range(due, _now_ms())
    except ValueError as error:
        raise UserError(str(error)) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
