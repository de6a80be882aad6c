"""A store that fails when told to."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.index.errors import StorageError
from tidegate.index.store import Batch, MemoryStore


class FlakyStore:
    """A store in memory; while `failing` every write is refused, as on a full disk."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.failing = False
        self.refused_writes = 0

    def get(self, key: bytes) -> bytes | None:
        return self.memory.get(key)

    def write(self, batch: Batch, *, sync: bool) -> None:
        if self.failing:
            self.refused_writes += 1
            raise StorageError("no space left on the device")
        self.memory.write(batch, sync=sync)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.memory.scan(start, end)

    def disk_bytes(self) -> int:
        return self.memory.disk_bytes()

    def close(self) -> None:
        self.memory.close()
