"""Files of a job in a directory or at an fsspec URL.

Invariants: an existing file is whole: it is renamed when written, so a task that runs twice, or dies, does no
harm; a file damaged all the same is made anew.
"""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from tidegate.pipeline.errors import OptionError, PipelineError

_TEMPORARY = re.compile(r"\.(probe|[0-9a-f]{32}\.part)")


class Files:
    """The files below ``url``. Travels to workers as its URL.

    goes_on: true if a restarted job continues with existing files, for the message about a full disk.
    """

    def __init__(self, url: str, *, goes_on: bool = True) -> None:
        self.url = url
        self._goes_on = goes_on
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise OptionError(f"--work {url[:80]}: {error}") from error
        self._root = root.rstrip("/")

    def __reduce__(self) -> tuple[partial[Files], tuple[str]]:
        return partial(Files, goes_on=self._goes_on), (self.url,)

    def path(self, name: str) -> str:
        """The path of a file; without a name, of the directory."""
        return f"{self._root}/{name}".rstrip("/")

    @property
    def directory(self) -> Path | None:
        """The directory on this machine, None if it is at another URL."""
        return Path(self._root) if isinstance(self._fs, LocalFileSystem) else None

    def make(self) -> None:
        """Make the directory, and check that it is writable. Raises ``OptionError``."""
        try:
            self._fs.makedirs(self._root, exist_ok=True)
            self.write(".probe", b"")
            self._fs.rm_file(self.path(".probe"))
        except OSError as error:
            raise OptionError(
                f"cannot write to {self.url}: {error.strerror or error}; choose another --work"
            ) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, replacing an older one."""
        temporary = self.path(f".{uuid.uuid4().hex}.part")
        try:
            self._fs.makedirs(self.path(name).rpartition("/")[0], exist_ok=True)
            self._fs.pipe_file(temporary, data)
            self._fs.mv(temporary, self.path(name))
        except OSError as error:
            with contextlib.suppress(OSError):
                self._fs.rm_file(temporary)
            stays = "what is done so far stays, " if self._goes_on else ""
            raise PipelineError(
                f"cannot write {name} to {self.url}: {error.strerror or error}; "
                f"{stays}start again when there is room"
            ) from error

    def read(self, name: str) -> bytes:
        """Read a whole file. Raises ``PipelineError``."""
        try:
            return bytes(self._fs.cat_file(self.path(name)))
        except OSError as error:
            raise PipelineError(f"cannot read {name} of {self.url}: {error}") from error

    def open(self, name: str) -> BinaryIO:
        """Open a file for partial reads. Raises ``PipelineError``."""
        try:
            return cast("BinaryIO", self._fs.open(self.path(name), "rb"))
        except OSError as error:
            raise PipelineError(f"cannot read {name} of {self.url}: {error}; start the job again") from error

    def names(self, folder: str) -> set[str]:
        """The names in a folder, none if it is missing."""
        if not self._fs.isdir(self.path(folder)):
            return set()
        self._fs.invalidate_cache()
        return {str(one).rpartition("/")[2] for one in self._fs.ls(self.path(folder), detail=False)}

    def has(self, name: str) -> bool:
        """True if there is a file or a folder of that name."""
        return bool(self._fs.exists(self.path(name)))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A document, None if it is missing. Raises ``PipelineError`` for any other content."""
        if not self.has(name):
            return None
        try:
            document = json.loads(self.read(name))
        except ValueError as error:
            raise PipelineError(f"{name} of {self.url} is damaged: remove it to begin anew") from error
        return cast("dict[str, Any]", document)

    def write_json(self, name: str, document: dict[str, Any]) -> None:
        """Write a document."""
        self.write(name, json.dumps(document).encode())

    def remove(self, names: Iterable[str]) -> None:
        """Remove these files and folders, unfinished files, and the directory if it is then empty."""
        self._fs.invalidate_cache()
        for name in names:
            if self._fs.exists(self.path(name)):
                self._fs.rm(self.path(name), recursive=True)
        for name in filter(_TEMPORARY.fullmatch, self.names("")):
            self._fs.rm_file(self.path(name))
        with contextlib.suppress(OSError):
            self._fs.rmdir(self._root)

    def drop(self, name: str) -> None:
        """Remove a bad file."""
        with contextlib.suppress(OSError):
            self._fs.rm_file(self.path(name))
