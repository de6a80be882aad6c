"""Stores for tests: one that forgets unsynced data, one that fails on command."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from tidegate.index.errors import CorruptRecordError, StorageError
from tidegate.index.format.keys import BLOCK
from tidegate.index.store import Batch, MemoryStore


def copied(store: MemoryStore) -> MemoryStore:
    """A store with the same content."""
    made = MemoryStore()
    batch = Batch()
    for key, value in store.reopen().scan(b"", b"\xff" * 40):
        batch.put(key, value)
    made.write(batch, sync=True)
    return made


class CrashStore:
    """Has the remains of a power loss: everything up to the last sync, and any prefix beyond it."""

    def __init__(self, durable: MemoryStore | None = None) -> None:
        self.durable = durable or MemoryStore()
        self._live = copied(self.durable)
        self._unsynced: list[Batch] = []

    def get(self, key: bytes) -> bytes | None:
        return self._live.get(key)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._live.write(batch, sync=sync)
        self._unsynced.append(batch)
        if sync:
            for each in self._unsynced:
                self.durable.write(each, sync=True)
            self._unsynced = []

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._live.scan(start, end)

    def loss(self) -> None:
        """A crash loses nothing that was synced."""

    def settle_loss(self) -> None:
        """There is nothing to settle."""

    def tidy(self) -> None:
        self._live.tidy()

    def compacts(self) -> bool:
        return self._live.compacts()

    def disk_bytes(self) -> int:
        return self._live.disk_bytes()

    def close(self) -> None:
        self._live.close()

    @property
    def unsynced(self) -> int:
        """Writes that a crash may lose."""
        return len(self._unsynced)

    def crashed(self, kept_writes: int) -> CrashStore:
        """The store after a crash that kept the first `kept_writes` unsynced writes."""
        for batch in self._unsynced[:kept_writes]:
            self.durable.write(batch, sync=True)
        return CrashStore(self.durable)


class RefusingStore:
    """A store over `memory`, behind a `write` that may refuse."""

    def __init__(self) -> None:
        self.memory = MemoryStore()

    def get(self, key: bytes) -> bytes | None:
        return self.memory.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self.memory.scan(start, end)

    def loss(self) -> None:
        """Refused writes were never durable."""

    def settle_loss(self) -> None:
        """There is nothing to settle."""

    def tidy(self) -> None:
        self.memory.tidy()

    def compacts(self) -> bool:
        return self.memory.compacts()

    def disk_bytes(self) -> int:
        return self.memory.disk_bytes()

    def close(self) -> None:
        self.memory.close()


class FailingStore(RefusingStore):
    """A store in memory that refuses writes after `writes_left` more of them (None: never).

    applies_refused: refused data is written all the same, as when only the sync fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None
        self.refused = 0
        self.applies_refused = False

    def write(self, batch: Batch, *, sync: bool) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.refused += 1
                if self.applies_refused:
                    self.memory.write(batch, sync=sync)
                raise StorageError("no space left on the device")
            self.writes_left -= 1
        self.memory.write(batch, sync=sync)


class UnreadableStore(MemoryStore):
    """A store in memory whose medium has damaged some values."""

    def __init__(self) -> None:
        super().__init__()
        self.damaged: set[bytes] = set()

    def get(self, key: bytes) -> bytes | None:
        if key in self.damaged:
            raise CorruptRecordError("the medium cannot read it")
        return super().get(key)


def corrupt_blocks(store: MemoryStore) -> None:
    """Flip a bit of every stored block."""
    for key, value in list(store.scan(bytes([BLOCK[0]]), bytes([BLOCK[0] + 1]))):
        batch = Batch()
        batch.put(key, value[:-1] + bytes([value[-1] ^ 1]))
        store.write(batch, sync=True)


def copied_live(path: Path, to: Path) -> Path:
    """The files of an open store as a kill would leave them: RocksDB's threads flush, compact and delete
    meanwhile, so they are copied until none changes.
    """
    while True:
        with contextlib.suppress(shutil.Error, FileNotFoundError):
            before = listed(path)
            shutil.copytree(path, to)
            if listed(path) == before == listed(to):
                return to
        shutil.rmtree(to, ignore_errors=True)


def listed(path: Path) -> dict[str, int]:
    """Name and size in bytes of each file, except LOG, which RocksDB writes at any time."""
    return {file.name: file.stat().st_size for file in list(path.iterdir()) if file.name != "LOG"}
