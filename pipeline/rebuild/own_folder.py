"""The folder of one verification, removed at its end, or by the next one after a kill.

In a directory the working process locks a file, until its end, however it ends. Invariants: the lock file
stays locked during the work; only a folder with name, lock file and files of a verification is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.rebuild.files import Files

LOCK = "lock"
_MAKING = ".lock"
_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")


@contextlib.contextmanager
def own_folder(files: Files, names: Sequence[str]) -> Iterator[None]:
    """Make the folder and own it for the block; then remove ``names`` in it, and the folder if it is empty.

    Raises ``OptionError`` if it cannot be made.
    """
    files.make()
    lock = None
    try:
        if files.directory is not None:
            lock = _locked(files.directory)
        yield
    finally:
        files.remove([*names, LOCK, _MAKING])
        if lock is not None:
            os.close(lock)


def remove_abandoned(work: str, names: Sequence[str]) -> list[Path]:
    """Remove ``names`` from the folders in ``work`` whose verification was killed; returns these folders.

    At a URL nothing is removed: there are no locks.
    """
    directory = Files(work).directory
    found = []
    with contextlib.suppress(OSError):
        for folder in sorted(directory.iterdir() if directory is not None else ()):
            if _NAME.fullmatch(folder.name) and _removed(folder, names):
                found.append(folder)
    return found


def _removed(folder: Path, names: Sequence[str]) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # it is not a verification's, or not this user's
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Files(str(folder)).remove([*names, LOCK])
    except OSError:
        return False  # a verification works there
    finally:
        os.close(lock)
    return True


def _locked(folder: Path) -> int:
    """The lock file, locked before it has its name. Raises ``OptionError``."""
    try:
        lock = os.open(folder / _MAKING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_EXCL, 0o600)
    except OSError as error:
        raise _no_lock(folder, error) from error
    try:
        # Without locks, as on some network file systems, no folder counts as abandoned.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / _MAKING).rename(folder / LOCK)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _no_lock(folder: Path, error: OSError) -> OptionError:
    return OptionError(f"cannot write to {folder}: {error.strerror or error}; choose another --work")
