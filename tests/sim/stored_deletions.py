"""A model of the shim's `StoredDeletions`: deletes positions in a cursor, and tells when its record has them.

One write at a time; requests that come meanwhile share the next one. Nothing is done while a reset is under
way, nor under another seal than that of the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from tests.sim.cursor import Cursor
from tests.sim.cursor_properties import After
from tests.sim.kernel import NS_PER_S

Position = tuple[int, int]

_LOST_AFTER_NS = 5 * NS_PER_S


class Kept(Enum):
    """The state of deletions in the record. NO_ROOM: it has no room for all."""

    YES = auto()
    NOT_NOW = auto()
    NO_ROOM = auto()


@dataclass(slots=True)
class _Request:
    positions: list[Position]
    seal: int
    done: Callable[[Kept], None]


class StoredDeletions:
    """`seal`: that of the cursor. `delete` deletes at once, False if the cursor refuses. `look`: at a reset
    that is under way."""

    def __init__(
        self,
        after: After,
        cursor: Cursor,
        seal: Callable[[], int],
        delete: Callable[[list[Position]], bool],
        look: Callable[[], None],
    ) -> None:
        self._after = after
        self._cursor = cursor
        self._seal = seal
        self._delete = delete
        self._look = look
        self._waiting: list[_Request] = []
        self._writing = False

    def store(self, positions: list[Position], seal: int, done: Callable[[Kept], None]) -> None:
        """Delete these; `done` is told when the record has them, or that it may not."""
        self._waiting.append(_Request(positions, seal, done))
        if not self._writing:
            self._writing = True
            self._after(0, self._write)

    def _write(self) -> None:
        requests, self._waiting = self._waiting, []
        cursor = self._cursor
        over = [False]

        def end(kept: Kept) -> None:
            if over[0]:
                return
            over[0] = True
            self._end(requests, kept)

        persisted = cursor.persisted_mark_delete
        if cursor.closed or persisted is None:
            self._look()
            end(Kept.NOT_NOW)
            return
        if persisted > cursor.mark_delete:  # Pulsar stores nothing before that
            end(Kept.NOT_NOW)
            return
        sealed = [each for each in requests if each.seal == self._seal()]
        if not all(self._delete(each.positions) for each in sealed):
            end(Kept.NOT_NOW)
            return
        consumed, used = cursor.consumed, cursor.used
        self._after(_LOST_AFTER_NS, end, Kept.NOT_NOW)

        def stored(done: bool) -> None:
            if not done:
                end(Kept.NOT_NOW)
                return
            used_now, most = cursor.used, cursor.ranges_max
            if used_now <= most and used + cursor.consumed - consumed <= most:
                end(Kept.YES)
            else:
                end(Kept.NOT_NOW if used_now <= most else Kept.NO_ROOM)

        cursor.store(stored)

    def _end(self, requests: list[_Request], kept: Kept) -> None:
        for each in requests:
            each.done(Kept.NOT_NOW if kept is Kept.YES and self._seal() != each.seal else kept)
        self._writing = bool(self._waiting)
        if self._writing:
            self._after(0, self._write)
