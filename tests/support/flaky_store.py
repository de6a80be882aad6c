"""A store that fails, or takes its time, when told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.store import Batch, MemoryStore

STUCK_SECONDS_MAX = 240.0


class FlakyStore:
    """A store in memory; while `failing` every write is refused, and while `stuck` every write waits."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.failing = False
        self.failing_persists = False  # the commits of frames are written
        self.failure: Exception = StorageError("no space left on the device")
        self.refused_writes = 0
        self._moving = threading.Event()
        self._moving.set()
        self.arrived = threading.Event()

    def stick(self) -> None:
        """Let writes wait, as on a disk that does not answer; `arrived` tells when one does."""
        self.arrived.clear()
        self._moving.clear()

    def release(self) -> None:
        """Let writes go on."""
        self._moving.set()

    def get(self, key: bytes) -> bytes | None:
        return self.memory.get(key)

    def write(self, batch: Batch, *, sync: bool) -> None:
        persist = any(key[:1] == keys.STATE for _, key, _ in batch.operations)
        if self.failing or (persist and self.failing_persists):
            self.refused_writes += 1
            raise self.failure
        self.arrived.set()
        if not self._moving.wait(STUCK_SECONDS_MAX):
            raise StorageError("the test has forgotten to release the store")
        self.memory.write(batch, sync=sync)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.memory.scan(start, end)

    def loss(self) -> None:
        """What it refuses was never durable."""

    def settle_loss(self) -> None:
        """There is nothing to settle."""

    def tidy(self) -> None:
        self.memory.tidy()

    def disk_bytes(self) -> int:
        return self.memory.disk_bytes()

    def close(self) -> None:
        self.memory.close()
