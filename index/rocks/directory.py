"""The data directory before a store is opened in it: its ownership, its content, its access rights.

Invariants: a refused directory stays unchanged, as does one that another process uses; damaged data is kept,
and never read back; only the owner can read the directory's content; a directory made here survives a power
cut, and with it its durable data.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import stat
import weakref
from collections.abc import Collection
from pathlib import Path

from tidegate.index.errors import AlreadyOpenError, ForeignDirectoryError, OthersDirectoryError
from tidegate.index.rocks import faults

WITNESS_NAME = "tidegate.witness"
PROBE_NAME = ".probe"
ASIDE_NAME = "damaged"

_LOG = logging.getLogger(__name__)
_SHOWN = 3
_OURS = re.compile(
    # Files of RocksDB, rocksdict, mkfs and our own, also those left half made by a kill.
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(log|sst|dbtmp)"
    rf"|rocksdict-config\.json|{re.escape(WITNESS_NAME)}|{re.escape(PROBE_NAME)}|{ASIDE_NAME}|lost\+found"
)


class DirectoryLock:
    """Keeps all others out of a directory, until `release` or the end of the process.

    Before taking its own lock, RocksDB renames files, and reads some that another process replaces. A file
    system without locks on directories, such as NFS, leaves only that lock.
    """

    def __init__(self, path: Path) -> None:
        """Take it. Raises AlreadyOpenError, OSError."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._release = weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise AlreadyOpenError(str(path)) from error
        except OSError:
            return

    def release(self) -> None:
        """Let others in. Releasing twice is harmless."""
        self._release()


def prepare(path: Path, beside: Collection[str] = ()) -> DirectoryLock:
    """Make `path` a directory that this process alone uses and may write, if possible.

    beside: names allowed there besides a store, as of a socket. The caller releases the lock. Raises
    ForeignDirectoryError, OthersDirectoryError, AlreadyOpenError, UnwritableDirectoryError.
    """
    try:
        _make(path)
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if found.st_uid != os.geteuid():
            raise OthersDirectoryError(str(path), found.st_uid)
        lock = DirectoryLock(path)
        try:
            _require_ours(path, beside)
            probe = path / PROBE_NAME
            probe.write_bytes(b"")
            probe.unlink()
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise faults.opening(path, error) from error
    return lock


def _make(path: Path) -> None:
    """Make the directory, and the missing ones above it, durably."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(0o700 if each == missing[0] else 0o777, exist_ok=True)
        with contextlib.suppress(PermissionError):  # the parent may be writable and not readable
            sync(each.parent)


def sync(directory: Path) -> None:
    """Make the list of files in `directory` durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_ours(path: Path, beside: Collection[str]) -> None:
    names = {each.name for each in path.iterdir()}
    if "CURRENT" in names or WITNESS_NAME in names:
        return  # a database: its content shows whether it is ours
    foreign = sorted(name for name in names - set(beside) if not _OURS.fullmatch(name))
    if foreign:
        shown = ", ".join(map(ascii, foreign[:_SHOWN])) + (", …" if len(foreign) > _SHOWN else "")
        raise ForeignDirectoryError(str(path), shown)


def close_to_others(path: Path) -> None:
    """Let only the owner read the files in `path`, once known to be ours. Raises OSError."""
    for each in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # RocksDB deletes files that it no longer needs
            found = each.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                each.chmod(0o600)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
        _LOG.warning("%s was open to other users and is closed now: mode 0700, its files 0600", path)


def is_witnessed(path: Path) -> bool:
    """True if a witness says that the store in `path` is ours."""
    return (path / WITNESS_NAME).is_file()


def move_aside(path: Path) -> Path | None:
    """Move the store in `path` into a folder there, in place of an earlier one, to make room for another.

    Returns the folder; None, and nothing is moved, if no witness says that the store is ours. Nothing of the
    store may be open. Raises AlreadyOpenError, StorageError.
    """
    if not is_witnessed(path):
        return None
    aside = path / ASIDE_NAME
    try:
        lock = DirectoryLock(path)
    except OSError as error:
        raise faults.opening(path, error) from error
    try:
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir(0o700)
        names = [each.name for each in path.iterdir() if _OURS.fullmatch(each.name)]
        # The witness, which names the owner, goes last. No store may begin beside the former one's WALs.
        last = {"CURRENT": 1, WITNESS_NAME: 2}
        for name in sorted(set(names) - {ASIDE_NAME, "lost+found"}, key=lambda name: last.get(name, 0)):
            (path / name).rename(aside / name)
        sync(aside)
        sync(path)
    except OSError as error:
        raise faults.opening(path, error) from error
    finally:
        lock.release()
    return aside


def aside_bytes(path: Path) -> int:
    """Bytes of the store moved away by `move_aside` in `path`; 0 without one."""
    total = 0
    with contextlib.suppress(OSError):  # its deletion is under way
        for each in (path / ASIDE_NAME).iterdir():
            total += each.lstat().st_size
    return total
