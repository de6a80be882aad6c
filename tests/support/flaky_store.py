"""A store that fails, or takes its time, when told to."""

from __future__ import annotations

import threading

from tests.support.stores import RefusingStore
from tidegate.index.errors import StorageError
from tidegate.index.format import keys
from tidegate.index.store import Batch

STUCK_SECONDS_MAX = 240.0


class FlakyStore(RefusingStore):
    """A store in memory; while `failing` every write is refused, and after `stick` every write waits, or
    those of persists."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.failing_persists = False  # the commits of frames are written
        self.failure: Exception = StorageError("no space left on the device")
        self.refused_writes = 0
        self.compacting = True
        self._moving = threading.Event()
        self._moving.set()
        self._persists_only = False
        self.arrived = threading.Event()

    def stick(self, *, persists_only: bool = False) -> None:
        """Let writes wait, as on a disk that does not answer; `arrived` tells when one does."""
        self._persists_only = persists_only
        self.arrived.clear()
        self._moving.clear()

    def release(self) -> None:
        """Let writes go on."""
        self._moving.set()

    def compacts(self) -> bool:
        return self.compacting

    def write(self, batch: Batch, *, sync: bool) -> None:
        persist = any(kind == Batch.PUT and key[:1] == keys.STATE for kind, key, _ in batch.operations)
        if self.failing or (persist and self.failing_persists):
            self.refused_writes += 1
            raise self.failure
        if persist or not self._persists_only:
            self._wait()
        self.memory.write(batch, sync=sync)

    def _wait(self) -> None:
        self.arrived.set()
        if not self._moving.wait(STUCK_SECONDS_MAX):
            raise StorageError("the test has forgotten to release the store")
