"""Storage errors of the operating system and RocksDB, translated into messages that say what to do.

A full disk, a used-up quota, a read-only file system and a missing permission look alike to the code, but
different people repair them: each gets its own message.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from tidegate.index.errors import DamagedDirectoryError, StorageError, UnwritableDirectoryError

_RUNNING = {
    errno.ENOSPC: ("the disk of {} is full", "free some space, then it goes on"),
    errno.EDQUOT: ("the disk quota for {} is used up", "raise it or free some space, then it goes on"),
    errno.EROFS: (
        "the file system of {} is read-only",
        "see in the kernel's log why, mount it writable, then it goes on; "
        "if it must be checked first (fsck), stop the daemon for that",
    ),
    errno.EACCES: ("this process may no longer write to {}", "give it back to its user, then it goes on"),
    errno.EPERM: ("{} does not permit writing", "see its owner and attributes, then it goes on"),
    errno.EFBIG: (
        "a file in {} has reached the size limit of this process",
        "raise it (ulimit -f), then it goes on",
    ),
    errno.EMFILE: ("too many files are open for {}", "raise the limit (ulimit -n) and restart"),
    errno.EIO: ("the disk of {} fails", "see the kernel's log, and replace it"),
}
_STARTING = {
    errno.ENOSPC: "its disk is full: free some space, then start again",
    errno.EDQUOT: "its disk quota is used up: raise it or free some space, then start again",
    errno.EROFS: "its file system is read-only: mount it writable, or choose another directory",
    errno.EACCES: "give this user write permission, or choose another directory",
    errno.EPERM: "not permitted: see its owner and attributes, or choose another directory",
    errno.ENOTDIR: "it is not a directory: choose another directory",
    errno.EEXIST: "it is not a directory: choose another directory",
}

_MISSING = (errno.ENOENT,)
_UNREADABLE = (errno.EIO, errno.ENODATA, errno.EBADMSG, errno.EUCLEAN)
"""Linux's errors for an unreadable sector, or unreadable metadata of the file system."""


_CAME_OF_IT = "; IO error: "


def is_corruption(error: Exception) -> bool:
    """True if RocksDB has found damage: a wrong checksum, a file that is not a table."""
    return str(error).startswith("Corruption")


def is_unreadable(error: Exception) -> bool:
    """True if RocksDB, or the medium below it, has found damage in the data to be read.

    A bad sector stays bad: retrying for ever would block its content, and everything after it.
    """
    return is_corruption(error) or bool(_number(error, _UNREADABLE))


def is_bad_table(error: Exception) -> bool:
    """True if a table is damaged. If a write met it, RocksDB was compacting it, and would retry for ever."""
    return is_unreadable(error) and ".sst" in str(error)


def running(path: Path, error: Exception) -> StorageError:
    """The error to raise for `error`, of the operating system or of RocksDB, met in an open store."""
    if is_corruption(error):
        return DamagedDirectoryError(str(path), str(error))
    words = _RUNNING.get(_number(error, _RUNNING))
    if words is None:
        return StorageError(f"the store in {path} fails: {error}")
    what, then = words
    return StorageError(f"{what.format(path)}: {then} ({error})")


def opening(path: Path, error: Exception) -> StorageError:
    """As `running`, met while opening the store."""
    if is_corruption(error):
        return DamagedDirectoryError(str(path), str(error))
    words = _STARTING.get(_number(error, _STARTING))
    if words is not None:
        return UnwritableDirectoryError(str(path), words)
    if not isinstance(error, OSError) and _number(error, _MISSING):
        return DamagedDirectoryError(str(path), f"a file of the database is missing: {error}")
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        return UnwritableDirectoryError(str(path), f"{reason}: choose another directory")
    return StorageError(
        f"cannot open the data directory {path} ({error}): repair that, or move the directory away and "
        "start again; the topics are read again then, nothing is lost"
    )


def _number(error: Exception, known: Iterable[int]) -> int:
    """The errno of `error`, 0 if it is none of `known`.

    RocksDB has it as text only: at the end, or before later failures of the same cause.
    """
    if isinstance(error, OSError):
        return error.errno or 0
    text = str(error).partition(_CAME_OF_IT)[0]
    return next((number for number in known if text.endswith(os.strerror(number))), 0)
