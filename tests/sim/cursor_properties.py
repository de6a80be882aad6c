"""A model of the shim's `CursorProperties` and `RefusedResets`: our properties, and the resets they meet.

Nothing is written during a reset; a refused one is undone, or its position would be stored later (see
`cursor`). Both show in the persisted position, which a reset removes until it is stored.

Left out: the first store of a new cursor (here it has a position from its beginning), and the return of a
reset that ended right before the undoing (here nothing comes between).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.sim.bookkeeper import Position
from tests.sim.cursor import Cursor, Done
from tests.sim.kernel import NS_PER_MS

_BUSY_PAUSE_NS = 5 * NS_PER_MS
_FIRST_PAUSE_NS = 100 * NS_PER_MS
_MAX_PAUSE_NS = 60_000 * NS_PER_MS


class After(Protocol):
    """Calls later, in this life of the broker."""

    def __call__(self, delay_ns: int, call: Callable[..., None], *args: object) -> object: ...


class CursorProperties:
    """`reset` keeps consumers out, and is refused at once while another reset is under way."""

    def __init__(self, after: After, cursor: Cursor, reset: Callable[[Position, Done], None]) -> None:
        self._after = after
        self._cursor = cursor
        self._reset = reset
        self._undoing = False

    def put(self, key: str, value: str, done: Done) -> None:
        """Write one more property, unless the cursor is closed or being reset."""
        if self._cursor.closed or self.is_being_reset:
            self.look()
            done(False)
            return

        def written(is_there: bool) -> None:
            done(is_there)
            self.look()

        self._cursor.put_cursor_property(key, value, written)

    @property
    def is_being_reset(self) -> bool:
        """True while nothing is written."""
        return self._cursor.persisted_mark_delete is None

    def look(self) -> None:
        """Undo a refused reset."""
        if not self._cursor.closed and self.is_being_reset and not self._undoing:
            self._undoing = True
            self._after(0, self._undo, _FIRST_PAUSE_NS)

    def _undo(self, pause_ns: int) -> None:
        if self._cursor.closed or not self.is_being_reset:
            self._undoing = False
            return
        busy = self._cursor.resetting

        def done(undone: bool) -> None:
            if undone:
                self._undoing = False
            elif busy:
                self._after(_BUSY_PAUSE_NS, self._undo, _FIRST_PAUSE_NS)
            else:
                self._after(pause_ns, self._undo, min(_MAX_PAUSE_NS, 2 * pause_ns))

        ledger_id, entry_id = self._cursor.mark_delete
        self._reset((ledger_id, entry_id + 1), done)
