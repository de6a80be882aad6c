"""An append-only journal in files, as the alternative to RocksDB's family ``journal``.

A file is a row of commits, each of which counts whole or not at all:

    commit := crc32:u32 size:u32 record*       size: of the records
    record := key_size:u16 value_size:u32 key value

Invariants:

- a commit is durable when ``write`` returns with ``sync``; no part of a later one counts without it;
- opening cuts the last file after its last whole commit: a power cut may have torn the rest. An unreadable
  commit in an earlier file is damage, and raises ``DamagedError``;
- a file is synced before its successor exists, and the folder after that;
- after a failed sync, whose pages the kernel may have dropped, the commit goes to a new file.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

Row = tuple[bytes, bytes]

_COMMIT = struct.Struct("<II")
_RECORD = struct.Struct("<HI")
_SUFFIX = ".journal"
FILE_BYTES = 64 * 2**20


class DamagedError(Exception):
    """A commit that was durable cannot be read."""


class JournalFile:
    """The journal of a folder; one thread writes, any may trim."""

    def __init__(self, folder: Path, *, file_bytes: int = FILE_BYTES) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = self._numbers()
        self._number = numbers[-1] if numbers else 0
        self._descriptor = -1
        self._size = 0
        if numbers:
            self._cut(self._path(self._number))
        self._next_file()

    @property
    def number(self) -> int:
        """The number of the file that is written to."""
        return self._number

    def write(self, rows: Sequence[Row], *, sync: bool) -> None:
        """Append a commit. Raises OSError; it then counts as not written, and may be written again."""
        body = b"".join(
            part for key, value in rows for part in (_RECORD.pack(len(key), len(value)), key, value)
        )
        head = _COMMIT.pack(zlib.crc32(body), len(body))
        if self._size and self._size + len(head) + len(body) > self._file_bytes:
            os.fdatasync(self._descriptor)
            self._next_file()
        before = self._size
        try:
            written = os.writev(self._descriptor, [head, body])
            if written != len(head) + len(body):
                raise OSError(f"{written} bytes of {len(head) + len(body)} were written")
            self._size += written
            if sync:
                os.fdatasync(self._descriptor)
        except OSError:
            # A torn commit amid a file would hide later ones, so the file ends before it.
            os.ftruncate(self._descriptor, before)
            self._next_file()
            raise

    def trim(self, number: int) -> None:
        """Delete the files before ``number``: a persist covers their records."""
        for old in self._numbers():
            if old < min(number, self._number):
                self._path(old).unlink()

    def rows(self) -> Iterator[Row]:
        """The records of all whole commits, in order. Raises ``DamagedError``."""
        for number in self._numbers():
            content = self._path(number).read_bytes()
            end, rows = _whole(content)
            if end != len(content):
                raise DamagedError(f"{self._path(number).name} cannot be read after byte {end}")
            yield from rows

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _next_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path(self._number), flags, 0o600)
        self._size = 0
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _cut(self, path: Path) -> None:
        content = path.read_bytes()
        end, _ = _whole(content)
        if end != len(content):
            with path.open("r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}"))

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012}{_SUFFIX}"


def _whole(content: bytes) -> tuple[int, list[Row]]:
    """(end of the last whole commit, the records up to there)."""
    rows: list[Row] = []
    end = 0
    while end + _COMMIT.size <= len(content):
        crc, size = _COMMIT.unpack_from(content, end)
        body = memoryview(content)[end + _COMMIT.size : end + _COMMIT.size + size]
        if len(body) != size or zlib.crc32(body) != crc:
            break
        at = 0
        while at < size:
            key_size, value_size = _RECORD.unpack_from(body, at)
            at += _RECORD.size
            rows.append(
                (bytes(body[at : at + key_size]), bytes(body[at + key_size : at + key_size + value_size]))
            )
            at += key_size + value_size
        end += _COMMIT.size + size
    return end, rows
