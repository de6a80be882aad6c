"""The size of a connection's next read, by the duration of the last one, which one turn of the loop applies:
128 KiB of entries take a millisecond or two, a thousand OPEN frames more than a hundred. Pure.
"""

from __future__ import annotations

MAX_BYTES = 128 * 1024
MIN_BYTES = 4 * 1024
_FIRST_BYTES = 16 * 1024  # a broker that connects opens its streams first
_SLOW_NS = 20_000_000
_FAST_NS = 5_000_000


class ReadSize:
    """``size_bytes``: of the next read."""

    def __init__(self) -> None:
        self.size_bytes = _FIRST_BYTES

    def note_read(self, took_ns: int) -> None:
        """Note how long the last read has taken the loop."""
        if took_ns > _SLOW_NS:
            self.size_bytes = max(MIN_BYTES, self.size_bytes * _SLOW_NS // took_ns)
        elif took_ns < _FAST_NS:
            self.size_bytes = min(MAX_BYTES, 2 * self.size_bytes)
