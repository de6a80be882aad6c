"""A directory after a power cut, from the record of a process's calls (see recorder.c).

As strict as POSIX: a file's bytes are on disk once synced, its name once its directory was. A cut leaves of a
file's unsynced data nothing, the first so many writes, any of its sectors, or all; of a directory's changes
the first so many.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

SECTOR_BYTES = 512
PAGE_BYTES = 4_096
_ENTRY = struct.Struct("<IIIIQq")
_HOW = ("none", "prefix", "torn", "scattered", "all")

ChangeT = TypeVar("ChangeT")
_Naming = tuple[str, "_File | None"]


class Operation(IntEnum):
    """An entry's call."""

    OPENED = 1
    CREATED = 2
    WRITTEN = 3
    TRUNCATED = 4
    SYNC_BEGUN = 5
    SYNC_ENDED = 6
    RENAMED = 7
    UNLINKED = 8
    MADE_DIRECTORY = 9
    LINKED = 10


class Entry(NamedTuple):
    """One recorded operation; `end`: the end of its entry in the record."""

    operation: Operation
    inode: int
    offset: int
    path: str
    other: str
    data: bytes
    end: int


def entries_of(record: bytes) -> Iterator[Entry]:
    """Yield a record's entries; the last one may be cut short by the process's kill."""
    at = 0
    while at + _ENTRY.size <= len(record):
        number, path_size, other_size, data_size, inode, offset = _ENTRY.unpack_from(record, at)
        start = at + _ENTRY.size
        end = start + path_size + other_size + data_size
        if end > len(record):
            return
        path = record[start : start + path_size].decode()
        other = record[start + path_size : start + path_size + other_size].decode()
        yield Entry(Operation(number), inode, offset, path, other, record[end - data_size : end], end)
        at = end


class _Pending(Generic[ChangeT]):
    """Changes that are not on disk, in order, and the syncs under way."""

    def __init__(self) -> None:
        self.changes: list[ChangeT] = []
        self._synced = 0
        self._begun: dict[int, int] = {}

    @property
    def in_sync(self) -> bool:
        """True if a sync is under way."""
        return bool(self._begun)

    def begin_sync(self, number: int) -> None:
        """The present content is on disk when this sync ends."""
        self._begun[number] = self._synced + len(self.changes)

    def end_sync(self, number: int) -> list[ChangeT]:
        """The changes that are on disk now."""
        count = max(0, self._begun.pop(number) - self._synced)
        self._synced += count
        done, self.changes = self.changes[:count], self.changes[count:]
        return done


class _File:
    """Content on disk, and changes since: (offset, data), or (size, None) for a new size."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = bytearray(durable)
        self.pending: _Pending[tuple[int, bytes | None]] = _Pending()

    def end_sync(self, number: int) -> None:
        for change in self.pending.end_sync(number):
            _apply(self.durable, change)

    def left(self, rng: random.Random, how: str) -> bytes:
        """The remains of a cut."""
        content, changes = bytearray(self.durable), self.pending.changes
        if how == "all":
            kept = len(changes)
        elif how == "none":
            kept = 0
        else:
            kept = rng.randint(0, len(changes))
        for change in changes[:kept]:
            _apply(content, change)
        if how == "torn" and kept < len(changes):
            _tear(content, changes[kept], rng, SECTOR_BYTES)
        if how == "scattered":
            for change in changes[kept:]:
                _tear(content, change, rng, PAGE_BYTES)
        return bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    at, data = change
    if data is None:
        del content[at:]
        content += bytes(at - len(content))
        return
    content += bytes(max(0, at - len(content)))
    content[at : at + len(data)] = data


def _tear(content: bytearray, change: tuple[int, bytes | None], rng: random.Random, unit_bytes: int) -> None:
    """Put some units of a write on disk; the file is as long as its last unit there."""
    at, data = change
    if data is None:
        if rng.random() < 0.5:
            _apply(content, change)
        return
    for start in range(at // unit_bytes * unit_bytes, at + len(data), unit_bytes):
        low, high = max(start, at), min(start + unit_bytes, at + len(data))
        if rng.random() < 0.5:
            _apply(content, (low, data[low - at : high - at]))


class _Directory:
    """Names on disk, and the changes since, each of one or more names: (name, its file or None)."""

    def __init__(self) -> None:
        self.durable: dict[str, _File] = {}
        self.now: dict[str, _File] = {}
        self.pending: _Pending[tuple[_Naming, ...]] = _Pending()

    def change(self, *names: _Naming) -> None:
        """Change names, all at once."""
        self.pending.changes.append(names)
        _name(self.now, names)

    def end_sync(self, number: int) -> None:
        for names in self.pending.end_sync(number):
            _name(self.durable, names)


def _content(directory: Path) -> dict[str, bytes | None]:
    """The file's bytes for each path below `directory`, None for a directory."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in directory.rglob("*")
    }


def _mode(how: str, *, is_behind: bool) -> str:
    if how != "behind":
        return how
    return "none" if is_behind else "all"


def _name(known: dict[str, _File], names: tuple[_Naming, ...]) -> None:
    for name, file in names:
        known.pop(name, None)
        if file is not None:
            known[name] = file


class Disk:
    """The files below `root`, directly or in recorded directories."""

    def __init__(self, root: Path) -> None:
        """As `root` is now, all of it on disk."""
        self.root = root
        self.directories: dict[str, _Directory] = {str(root): _Directory()}
        self._inodes: dict[int, _File] = {}
        for path in sorted(root.rglob("*")):
            file = _File(b"" if path.is_dir() else path.read_bytes())
            where = self.directories[str(path.parent)]
            where.durable[path.name] = where.now[path.name] = file
            if path.is_dir():
                self.directories[str(path)] = _Directory()
            else:
                self._inodes[path.stat().st_ino] = file

    def replay(self, entry: Entry) -> None:
        """Do the recorded operation."""
        match entry.operation:
            case Operation.OPENED:
                found = self._find(entry.path)
                if found is not None:
                    self._inodes[entry.inode] = found
            case Operation.CREATED:
                made = self._inodes[entry.inode] = _File()
                self._change(entry.path, made)
            case Operation.WRITTEN:
                self._inodes[entry.inode].pending.changes.append((entry.offset, entry.data))
            case Operation.TRUNCATED:
                self._inodes[entry.inode].pending.changes.append((entry.offset, None))
            case Operation.SYNC_BEGUN:
                self._synced(entry).pending.begin_sync(entry.offset)
            case Operation.SYNC_ENDED:
                self._synced(entry).end_sync(entry.offset)
            case Operation.RENAMED:
                file = self._find(entry.path)
                if file is not None:
                    old, new = Path(entry.path), Path(entry.other)
                    assert old.parent == new.parent, (
                        "a rename from one directory into another is not modelled"
                    )
                    self.directories[str(old.parent)].change((old.name, None), (new.name, file))
            case Operation.LINKED:
                file = self._find(entry.path)
                if file is not None:
                    self._change(entry.other, file)
            case Operation.UNLINKED:
                self._change(entry.path, None)
            case Operation.MADE_DIRECTORY:
                self.directories[entry.path] = _Directory()
                self._change(entry.path, _File())

    def cut(self, to: Path, rng: random.Random, how: str) -> None:
        """Write the remains of `root` after a power cut now into the new directory `to`.

        how: `none`, `prefix`, `torn`, `scattered` or `all` of the unsynced data, each file for itself; `any`:
        one of these for each file; `behind`: none of it in one file or directory, mostly one being synced,
        and all in the others, which finds early reports.
        """
        behind = self._behind(rng) if how == "behind" else None
        for name, directory in self.directories.items():
            names = dict(directory.durable)
            changes = directory.pending.changes
            mode = _mode(how, is_behind=directory is behind)
            kept = {"none": 0, "all": len(changes)}.get(mode, rng.randint(0, len(changes)))
            for change in changes[:kept]:
                _name(names, change)
            place = to / Path(name).relative_to(self.root)
            if place != to and not place.is_dir():
                continue  # the directory itself is gone
            place.mkdir(0o700, exist_ok=True)
            for each, file in names.items():
                if str(Path(name) / each) in self.directories:
                    (place / each).mkdir(0o700)
                else:
                    mode = rng.choice(_HOW) if how == "any" else _mode(how, is_behind=file is behind)
                    (place / each).write_bytes(file.left(rng, mode))

    def unrecorded(self, beside: Path) -> list[str]:
        """Differences between `root` and the record, by name; empty if the record has every call.

        beside: a place for a new directory, deleted afterwards.
        """
        made = beside / "recorded"
        made.mkdir()
        self.cut(made, random.Random(0), "all")  # noqa: S311
        recorded, real = _content(made), _content(self.root)
        shutil.rmtree(made)
        return sorted(
            name for name in recorded.keys() | real.keys() if recorded.get(name, "") != real.get(name, "")
        )

    def _behind(self, rng: random.Random) -> _File | _Directory | None:
        """Any file or directory with changes that are not on disk, None without one."""
        known: list[_File | _Directory] = [*self.directories.values(), *self._inodes.values()]
        changed = [each for each in known if each.pending.changes]
        in_sync = [each for each in changed if each.pending.in_sync]
        some = in_sync if in_sync and rng.random() < 0.75 else changed
        return rng.choice(some) if some else None

    def _find(self, path: str) -> _File | None:
        where = self.directories.get(str(Path(path).parent))
        return None if where is None else where.now.get(Path(path).name)

    def _change(self, path: str, file: _File | None) -> None:
        self.directories[str(Path(path).parent)].change((Path(path).name, file))

    def _synced(self, entry: Entry) -> _File | _Directory:
        return self.directories[entry.path] if entry.path else self._inodes[entry.inode]
