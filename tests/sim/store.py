"""A machine's disk with one store on it that keeps the promises of the index's Store protocol, and no others.

- A batch is applied whole or not at all. kill -9 loses nothing written.
- A power cut loses unsynced data: a suffix of the batches (`prefix`: RocksDB has one WAL), or any of them
  (`scattered`, as if writes were reordered, which counts as damage). RocksDB tears no batch: its WAL has a
  checksum for each record.
- During a write of an executor's job the world goes on, and may kill the process or cut the power: so every
  write is a place to crash at, before and after it.
- A synced part of the WAL may be gone. The store then says so until that is settled, as RocksDB's witness
  does.
- The disk may be full or failing (refused data may be there nevertheless), slow, refuse reads, or return
  other data than was written.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.sim.kernel import NS_PER_MS, Kernel, Killed, Process
from tidegate.index.errors import ClosedError, CorruptRecordError, StorageError
from tidegate.index.format import keys
from tidegate.index.store import Batch, Loss

_BUSY_WRITE_SHARE = 0.05
_BUSY_FACTOR = 20
_WAL_BATCHES = 64


class PowerCut(StrEnum):
    """The unsynced data left by a power cut."""

    ALL_LOST = "all_lost"
    PREFIX = "prefix"
    SCATTERED = "scattered"


class Trouble(StrEnum):
    """The disk's fault."""

    NONE = "none"
    REFUSES = "refuses"
    REFUSES_BUT_WRITES = "refuses_but_writes"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The disk refuses the n-th write from now, or the n-th with a value of one of these kinds (`keys`)."""

    write: int
    trouble: Trouble
    kinds: bytes = b""

    def counts(self, batch: Batch) -> bool:
        """True if a write is one of them."""
        return not self.kinds or any(key[0] in self.kinds for _, key, _ in batch.operations)


@dataclass(slots=True)
class _Written:
    """A batch, and the values before it: (key, value before), newest last. `sync`: it was to be synced
    itself.
    """

    batch: Batch
    replaced: list[tuple[bytes, bytes | None]]
    sync: bool


class Disk:
    """A machine's disk; it outlives processes. Sorted keys, values, and unsynced writes."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.life = 0  # another one after the loss of the data directory
        self.trouble = Trouble.NONE
        self.write_ns = 300_000
        self.refuses_reads = False
        self.refused = False  # it has refused something, and nobody has looked since
        self.unreadable: set[bytes] = set()
        self.damaged = False  # it has returned, or will return, other data than was written
        self.kill_at_write: int | None = None
        self.fail_at_write: Refusal | None = None
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}
        self.loss: Loss | None = None
        self._unsynced: list[_Written] = []
        self._first_unsynced = 0  # number of the first of them
        self.applied_ns = 0  # the time of the last write
        self._synced: deque[_Written] = deque(maxlen=_WAL_BATCHES)  # the WAL's tail, which damage may take

    # ---- calls of the store

    def get(self, key: bytes) -> bytes | None:
        if key in self.unreadable:
            raise CorruptRecordError("the disk cannot read it")
        return self._values.get(key)

    def scan(self, start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        found = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        return [(key, self._values[key]) for key in found]

    def apply(self, batch: Batch, *, sync: bool = False) -> int:
        """Write a batch; its number, for `synced`."""
        replaced: list[tuple[bytes, bytes | None]] = []
        values = self._values
        for kind, key, value in batch.operations:
            if kind == Batch.PUT:
                before = values.get(key)
                if before is None:
                    insort(self._keys, key)
                replaced.append((key, before))
                values[key] = value
                self.unreadable.discard(key)
            elif kind == Batch.DELETE:
                before = values.pop(key, None)
                if before is not None:
                    replaced.append((key, before))
                    del self._keys[bisect_left(self._keys, key)]
            else:
                low, high = bisect_left(self._keys, key), bisect_left(self._keys, value)
                for removed in self._keys[low:high]:
                    replaced.append((removed, values.pop(removed)))
                del self._keys[low:high]
        self.applied_ns = self.kernel.now_ns
        self._unsynced.append(_Written(batch, replaced, sync))
        return self._first_unsynced + len(self._unsynced)

    def synced(self, number: int) -> None:
        """Everything up to the batch with that number is durable."""
        count = number - self._first_unsynced
        if count > 0:
            self._synced.extend(self._unsynced[:count])
            del self._unsynced[:count]
            self._first_unsynced = number

    def recovered(self) -> None:
        """A store is opened, which makes a killed process's writes durable: RocksDB writes its WAL into
        tables.
        """
        self.synced(self._first_unsynced + len(self._unsynced))

    def take_refused(self) -> bool:
        """True if it has refused something since the last call."""
        refused, self.refused = self.refused, False
        return refused

    @property
    def troubled(self) -> bool:
        """True if it refuses something, or will."""
        return self.trouble is not Trouble.NONE or self.fail_at_write is not None or self.refuses_reads

    def size_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self._values.items())

    # ---- faults

    def cut_power(self, how: PowerCut) -> int:
        """Lose unsynced data, or some of it; returns the number of lost batches."""
        unsynced = self._take_unsynced()
        luck = self.kernel.random
        if how is PowerCut.ALL_LOST:
            kept = []
        elif how is PowerCut.PREFIX:
            kept = unsynced[: luck.randint(0, len(unsynced))]
        else:
            kept = [written for written in unsynced if luck.random() < 0.5]
            # A gap before a present record is damage.
            self.damaged |= kept != unsynced[: len(kept)]
        for written in kept:
            self.apply(written.batch, sync=written.sync)
        self.synced(self._first_unsynced + len(self._unsynced))
        return len(unsynced) - len(kept)

    def lose_log(self, batches: int) -> int:
        """The last batches are gone, synced ones too; returns how many of those. No process may have
        it open.
        """
        self._take_unsynced()
        lost = 0
        for _ in range(min(batches, len(self._synced))):
            written = self._synced.pop()
            self._undo(written)
            lost += written.sync
        if lost:
            self.damaged = True
            self.loss = Loss(lost, "a simulated log that ends too early")
        return lost

    def _take_unsynced(self) -> list[_Written]:
        unsynced, self._unsynced = self._unsynced, []
        self._first_unsynced += len(unsynced)
        for written in reversed(unsynced):
            self._undo(written)
        return unsynced

    def _undo(self, written: _Written) -> None:
        for key, before in reversed(written.replaced):
            self._put_back(key, before)

    def _put_back(self, key: bytes, before: bytes | None) -> None:
        if before is None:
            del self._values[key]
            del self._keys[bisect_left(self._keys, key)]
        else:
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = before

    def lose(self) -> None:
        """The data directory is gone."""
        self.life += 1
        self._keys, self._values, self._unsynced = [], {}, []
        self._synced.clear()
        self.unreadable.clear()
        self.loss = None

    def damage(self, kinds: bytes) -> bytes | None:
        """Flip a bit of a stored value of one of these kinds, or make it unreadable; its key, or None."""
        found = [key for key in self._keys if key[0] in kinds]
        if not found:
            return None
        luck = self.kernel.random
        key = found[luck.randrange(len(found))]
        value = self._values[key]
        self.damaged = True
        if key[:1] == keys.BLOCK and luck.random() < 0.3:
            self.unreadable.add(key)
        elif value:
            at = luck.randrange(len(value))
            self._values[key] = value[:at] + bytes([value[at] ^ 1 << luck.randrange(8)]) + value[at + 1 :]
        return key


class SimStore:
    """Implements `tidegate.index.store.Store` for one life of one process."""

    def __init__(self, disk: Disk, process: Process) -> None:
        if not disk.troubled:
            disk.recovered()
        self._disk = disk
        self._process = process
        self._closed = False

    def __str__(self) -> str:
        return f"simulated disk {self._disk.name}"

    def get(self, key: bytes) -> bytes | None:
        self._require_readable()
        return self._disk.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._require_readable()
        return iter(self._disk.scan(start, end))

    def write(self, batch: Batch, *, sync: bool) -> None:
        self._require_open()
        disk = self._disk
        self._crash_point()
        trouble = self._trouble(batch)
        if trouble is not Trouble.NONE:
            disk.refused = True
            disk.kernel.disturb()
            if trouble is Trouble.REFUSES_BUT_WRITES:
                disk.apply(batch)
            self._wait()
            raise StorageError("no space left on the simulated device")
        number = disk.apply(batch, sync=sync)
        self._wait()
        if sync:
            disk.synced(number)
        self._crash_point()

    def _trouble(self, batch: Batch) -> Trouble:
        disk = self._disk
        refusal = disk.fail_at_write
        if refusal is None or not refusal.counts(batch):
            return disk.trouble
        if refusal.write > 1:
            disk.fail_at_write = replace(refusal, write=refusal.write - 1)
            return disk.trouble
        disk.fail_at_write = None
        return refusal.trouble

    def loss(self) -> Loss | None:
        return self._disk.loss

    def settle_loss(self) -> None:
        self._disk.loss = None

    def tidy(self) -> None:
        self._require_open()

    def compacts(self) -> bool:
        return True

    def disk_bytes(self) -> int:
        return self._disk.size_bytes()

    def close(self) -> None:
        self._closed = True

    def _require_open(self) -> None:
        if self._process.dead:
            raise Killed
        if self._closed:
            raise ClosedError("the store is closed")

    def _require_readable(self) -> None:
        self._require_open()
        if self._disk.refuses_reads:
            self._disk.refused = True
            self._disk.kernel.disturb()
            raise StorageError("too many files are open")

    def _crash_point(self) -> None:
        disk = self._disk
        if disk.kill_at_write is not None:
            disk.kill_at_write -= 1
            if disk.kill_at_write <= 0:
                disk.kill_at_write = None
                disk.kernel.note(f"{self._process} is killed at a write")
                disk.kernel.kill(self._process)
                raise Killed

    def _wait(self) -> None:
        """Let the world go on during the write, if another thread waits for it."""
        kernel = self._disk.kernel
        if kernel.on_worker:
            longest_ns = self._disk.write_ns
            if kernel.chance(_BUSY_WRITE_SHARE):
                longest_ns *= _BUSY_FACTOR
            kernel.run_nested(kernel.now_ns + kernel.between_ns(0, longest_ns))
        if self._process.dead:
            raise Killed


SLOW_DISK_NS = 100 * NS_PER_MS
