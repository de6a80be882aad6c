"""The witness: a small file beside the database that says how far the database was synced, because RocksDB
opens a damaged or shortened WAL without a report (docs/decisions/witness.md). Each synced batch carries its
commit's number, written here after the sync. A database with a last commit older than its witness has lost
durable data.

Invariants:
- the witness never claims more than was synced, so after a power cut it is behind the database or level. It
  is synced itself only now and then (after a number of commits, in the store's `tidy`, and on closing): an
  older witness only notices less;
- one of the two slots stays unchanged from one sync of the file to the next: however a write is torn, a good
  slot remains. The file exists, synced, before the first commit that it attests;
- a loss stays in the file until settled, and is synced before any other write, so that a crash in between
  does not hide it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format.commits import STATEMENT_BYTES, Statement
from tidegate.index.rocks.directory import WITNESS_NAME, sync
from tidegate.index.store import Loss

_LOG = logging.getLogger(__name__)

_SLOTS_AT = (0, 4_096)
_FILE_BYTES = 8_192
_COMMITS_PER_SYNC = 512
"""At full load a sync of this file each second or two; the kernel alone writes it back after 30 s."""


def judge(found: Statement | None, recovered: int | None) -> tuple[Statement, Loss | None]:
    """The statement from now on, and the loss, None if there is none.

    found: the witness's statement; None if missing or unreadable. recovered: the number of the database's
    last commit; None without one.
    """
    if found is None and recovered is None:
        return Statement(0), None  # a new database, or one older than witnesses
    if found is None:
        # A witness does not vanish by itself. Uncertain state does not count: that costs a redelivery.
        loss = Loss(0, f"its {WITNESS_NAME} is missing or damaged")
        return Statement((recovered or 0) + 1, settled=False), loss
    last = recovered or 0
    missing = max(found.commit - last, 0)
    if found.settled and not missing:
        return Statement(last), None
    if not found.settled:
        loss = Loss(found.lost, "found at a start before, and not settled then")
    else:
        loss = Loss(missing, f"its log ends at commit {last}, and commit {found.commit} had been synced")
    return Statement(max(found.commit, last) + 1, loss.commits, settled=False), loss


class Witness:
    """The file. For any thread; it never fails a commit, which is durable without it."""

    def __init__(self, descriptor: int, statement: Statement, slot: int) -> None:
        self._descriptor = descriptor
        self._statement = statement
        self._slot = slot
        self._lock = threading.Lock()
        self._unsynced = 0
        self._failing = False

    @classmethod
    def open(cls, directory: Path, recovered: int | None) -> tuple[Witness, Loss | None]:
        """Open or make the witness of the database in `directory`, which has commits up to `recovered`.

        Raises OSError. The file's existence and its statement are synced on return.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(directory / WITNESS_NAME, flags, 0o600)
        try:
            content = os.pread(descriptor, _FILE_BYTES, 0)
            found, slot = _read(content)
            statement, loss = judge(found, recovered)
            witness = cls(descriptor, statement, 1 - slot)
            os.pwrite(descriptor, bytes(_FILE_BYTES - len(content)), len(content))
            if statement != found:
                witness._put()
                witness._slot = slot
            os.fsync(descriptor)
            if not content:
                sync(directory)
        except BaseException:
            os.close(descriptor)
            raise
        return witness, loss

    @property
    def commit(self) -> int:
        """The number of the last commit known to be synced, or a higher one that was never given."""
        return self._statement.commit

    def advance(self, commit: int) -> None:
        """Note that everything up to `commit` is synced."""
        with self._lock:
            if commit > self._statement.commit:
                self._statement = self._statement._replace(commit=commit)
                self._unsynced += 1
                self._try(sync=self._unsynced >= _COMMITS_PER_SYNC)

    def accuse(self, recovered: int | None) -> Loss | None:
        """Compare with the last commit of the reopened database; returns the loss."""
        with self._lock:
            statement, loss = judge(self._statement, recovered)
            if loss is not None and self._statement.settled:
                self._statement = statement
                self._try(sync=True)
            return loss

    def settle(self) -> None:
        """Note that a loss's consequences are durable, with everything up to the last commit."""
        with self._lock:
            self._statement = Statement(self._statement.commit)
            self._try(sync=True)

    def sync(self) -> None:
        """Make the file's statement durable."""
        with self._lock:
            if self._unsynced:
                self._try(sync=True)

    def close(self) -> None:
        """Sync and close the file. Closing twice is harmless."""
        self.sync()
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    def _try(self, *, sync: bool) -> None:
        if self._descriptor < 0:
            return
        try:
            self._put()
            if sync:
                os.fsync(self._descriptor)
                self._slot = 1 - self._slot
                self._unsynced = 0
        except OSError as error:
            if not self._failing:
                _LOG.warning("cannot write the witness, damage in the WAL may go unnoticed: %s", error)
            self._failing = True
        else:
            self._failing = False

    def _put(self) -> None:
        os.pwrite(self._descriptor, self._statement.encode(), _SLOTS_AT[self._slot])


def _read(content: bytes) -> tuple[Statement | None, int]:
    """A file's newest good statement, and its slot (1 if there is none)."""
    newest, its_slot = None, 1
    for slot, at in enumerate(_SLOTS_AT):
        with contextlib.suppress(CorruptRecordError):
            found = Statement.decode(content[at : at + STATEMENT_BYTES])
            if newest is None or found.commit > newest.commit:
                newest, its_slot = found, slot
    return newest, its_slot
