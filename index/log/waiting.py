"""Writes of the store that wait to be appended to a ledger, in order and up to a limit.

Invariant: beyond the limit no write is kept, only their age.
"""

from __future__ import annotations

from collections import deque

from tidegate.index.entries.checks import require
from tidegate.index.log.tap import Noted, Operation


class Waiting:
    """Waiting writes.

    size_bytes: of the waiting writes, at most `max_bytes` and one write. since_ns: time of the oldest write
    not known to be in the ledger; None if there is none. full: True once the limit was exceeded.
    """

    def __init__(self, max_bytes: int) -> None:
        self.size_bytes = 0
        self.full = False
        self._max_bytes = max_bytes
        self._noted: deque[Noted] = deque()
        self._taken_ns: int | None = None

    def __len__(self) -> int:
        return len(self._noted)

    @property
    def since_ns(self) -> int | None:
        """See above."""
        if self._taken_ns is not None:
            return self._taken_ns  # taken from the front: no waiting write is older
        return self._noted[0].written_ns if self._noted else None

    def put(self, noted: Noted) -> None:
        """Add a write."""
        if self.full:
            return
        self._noted.append(noted)
        self.size_bytes += noted.size_bytes
        if self.size_bytes > self._max_bytes:
            self._taken_ns = self.since_ns
            self.full = True
            self._noted.clear()
            self.size_bytes = 0

    def pop_oldest(self, record_bytes: int, count: int) -> tuple[list[Operation], int]:
        """The operations of the oldest `count` writes, or of as many as fill a record; also their number.

        `since_ns` counts them until `appended`.
        """
        operations: list[Operation] = []
        taken = size_bytes = 0
        if self._taken_ns is None:
            self._taken_ns = self.since_ns
        while taken < count and self._noted and size_bytes < record_bytes:
            noted = self._noted.popleft()
            taken += 1
            operations += noted.operations
            size_bytes += noted.size_bytes
        self.size_bytes -= size_bytes
        return operations, taken

    def appended(self) -> None:
        """Note that the taken writes are in the ledger."""
        if not self.full:
            self._taken_ns = None

    def check(self) -> None:
        """Raise CheckError if an invariant does not hold."""
        require(self.size_bytes == sum(each.size_bytes for each in self._noted), "waiting bytes are wrong")
        require(not (self.full and self._noted), "writes wait past the limit")
        require(not self.full or self.since_ns is not None, "the oldest missing write has no time")
