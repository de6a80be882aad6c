"""Stores of named objects for index logs: a local folder, or anything that fsspec knows.

Names are relative, with "/" between their parts; clients never choose the parts. Methods block, and raise
OSError and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path
from typing import Protocol


class Objects(Protocol):
    """A store of objects."""

    @property
    def creates_once(self) -> bool:
        """True if the store refuses a second object of one name, wherever its creators are."""
        ...

    def create(self, name: str, data: bytes) -> None:
        """Make an object, durable on return. Raises FileExistsError if there is one of that name."""
        ...

    def read(self, name: str) -> bytes:
        """The bytes of an object. Raises FileNotFoundError."""
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of a folder's direct members, by the last part of their names; 0 for a folder."""
        ...

    def remove(self, name: str) -> None:
        """Delete an object, or everything in a folder; no error if there is none."""
        ...


class FolderObjects:
    """Files below an existing folder: an unmounted folder must not pass for an empty one.

    A file is written under another name, synced, and linked to its own: it is there whole or not at all.
    """

    creates_once = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, name: str, data: bytes) -> None:
        """See `Objects`."""
        path = self._root / name
        try:
            self._create(path, data)
        except FileNotFoundError:
            # Another process has just removed its empty folder.
            self._create(path, data)

    def _create(self, path: Path, data: bytes) -> None:
        if not self._root.is_dir():
            raise NotADirectoryError(f"there is no folder {self._root}: make it, or mount its file system")
        self._make_folder(path.parent)
        unfinished = path.parent / f".{path.name}.{secrets.token_hex(8)}"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 a descriptor has no path
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.link(unfinished, path)
        finally:
            unfinished.unlink()
        _sync(path.parent)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        _sync(folder.parent)

    def read(self, name: str) -> bytes:
        """See `Objects`."""
        return (self._root / name).read_bytes()

    def sizes(self, folder: str) -> dict[str, int]:
        """See `Objects`."""
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / folder) as rows:
            for row in rows:
                if not row.name.startswith("."):
                    found[row.name] = 0 if row.is_dir() else row.stat().st_size
        return found

    def remove(self, name: str) -> None:
        """See `Objects`."""
        path = self._root / name
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        if path.parent != self._root:
            with contextlib.suppress(OSError):  # it is not empty
                path.parent.rmdir()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
