"""The data directory before a store is opened in it: whose it is, what is in it, who may read it.

Invariants: nothing is changed in a directory that is refused; what is damaged is kept, and nothing is read
back from there; what is in the directory can be read by its owner alone, because subscriptions and positions
tell what a business does; a directory that is made is there after a power cut, so that what is durable in it
is, too.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

from tidegate.index import faults
from tidegate.index.errors import ForeignDirectoryError, OthersDirectoryError

WITNESS_NAME = "tidegate.witness"
PROBE_NAME = ".probe"
ASIDE_NAME = "damaged"

_LOG = logging.getLogger(__name__)
_SHOWN = 3
_OURS = re.compile(
    # What RocksDB, rocksdict and we make, also when killed while making it, and what mkfs makes.
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|(MANIFEST|OPTIONS)-\d+(\.dbtmp)?|\d+\.(log|sst|dbtmp)"
    rf"|rocksdict-config\.json|{re.escape(WITNESS_NAME)}|{re.escape(PROBE_NAME)}|{ASIDE_NAME}|lost\+found"
)


def prepare(path: Path, beside: Collection[str] = ()) -> None:
    """Make `path` a directory that this process alone uses and may write, if it can be that.

    beside: names that may be there besides a store, as of a socket.
    Raises ForeignDirectoryError, OthersDirectoryError, UnwritableDirectoryError.
    """
    try:
        _make(path)
        found = path.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if found.st_uid != os.geteuid():
            raise OthersDirectoryError(str(path), found.st_uid)
        _require_ours(path, beside)
        probe = path / PROBE_NAME
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise faults.opening(path, error) from error


def _make(path: Path) -> None:
    """Make the directory, and those above it that are missing, durably."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        each.mkdir(0o700 if each == missing[0] else 0o777, exist_ok=True)
        with contextlib.suppress(PermissionError):  # who may make a directory may not always read where it is
            sync(each.parent)


def sync(directory: Path) -> None:
    """Make durable which files are in `directory`. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_ours(path: Path, beside: Collection[str]) -> None:
    names = {each.name for each in path.iterdir()}
    if "CURRENT" in names or WITNESS_NAME in names:
        return  # a database: whether it is ours, is in it
    foreign = sorted(name for name in names - set(beside) if not _OURS.fullmatch(name))
    if foreign:
        shown = ", ".join(map(ascii, foreign[:_SHOWN])) + (", …" if len(foreign) > _SHOWN else "")
        raise ForeignDirectoryError(str(path), shown)


def close_to_others(path: Path) -> None:
    """Let the owner alone read what is in `path`, once it is known to be ours. Raises OSError."""
    for each in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # RocksDB deletes what it needs no more
            found = each.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
                each.chmod(0o600)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)
        _LOG.warning("%s was open to other users, it is no longer: mode 0700, its files 0600", path)


def is_witnessed(path: Path) -> bool:
    """Whether a witness says that the store in `path` is ours."""
    return (path / WITNESS_NAME).is_file()


def move_aside(path: Path) -> Path | None:
    """Move the store in `path` into a folder there, in place of what was moved before; another can be made.

    The folder; None, and nothing is done, if no witness says that the store is ours. Nothing of it may be
    open. Raises StorageError.
    """
    if not is_witnessed(path):
        return None
    aside = path / ASIDE_NAME
    try:
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir(0o700)
        names = [each.name for each in path.iterdir() if _OURS.fullmatch(each.name)]
        # Whose it is must be known until the end, and a store is not begun beside WALs of the former one.
        last = {"CURRENT": 1, WITNESS_NAME: 2}
        for name in sorted(set(names) - {ASIDE_NAME, "lost+found"}, key=lambda name: last.get(name, 0)):
            (path / name).rename(aside / name)
        sync(aside)
        sync(path)
    except OSError as error:
        raise faults.opening(path, error) from error
    return aside


def aside_bytes(path: Path) -> int:
    """Bytes of what `move_aside` has moved away in `path` and nobody has deleted; 0 if there is nothing."""
    total = 0
    with contextlib.suppress(OSError):  # somebody deletes it
        for each in (path / ASIDE_NAME).iterdir():
            total += each.lstat().st_size
    return total
