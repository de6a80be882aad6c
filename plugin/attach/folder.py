"""A directory of a Pulsar home, used through its descriptor.

Root attaches homes of other users, who may replace a file by a link at any instant. Invariants:

- below the home no link is followed, in reading or in writing;
- only files of the home's owner are read, replaced or removed: no hard link opens another user's file;
- the checked file is the used one: one look-up for each name, in an open directory;
- a file is replaced whole: a new one beside it, then a rename.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from tidegate.plugin.errors import AttachError
from tidegate.plugin.shared.users import user_name

_FILE_MODE = 0o644
_FILE_MAX_BYTES = 16 << 20
"""More than any jar, conf file or record of ours; a sparse file of another size would fill the memory."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not blocking: it may be a pipe
_TOKEN_BYTES = 8
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """An open directory; ``path`` serves messages only."""

    def __init__(self, descriptor: int, path: Path, owner: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._owner = owner

    @classmethod
    def home(cls, path: Path) -> Self:
        """The home itself, through any links on the way, as the command's user named it.

        Raises ``AttachError`` if it is not a directory.
        """
        try:
            descriptor = os.open(path, _DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise AttachError(
                f"{path} is not a directory: give the directory that Pulsar was unpacked into"
            ) from error
        except OSError as error:
            raise _unreadable(path, error) from error
        return cls(descriptor, path, os.fstat(descriptor).st_uid)

    @property
    def owner(self) -> int:
        """The uid of the home's owner."""
        return self._owner

    @property
    def identity(self) -> tuple[int, int]:
        """Identifies the directory, whatever its name."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def names(self) -> list[str]:
        """The names in it, sorted. Raises ``AttachError``."""
        try:
            return sorted(os.listdir(self._descriptor))  # noqa: PTH208 a descriptor
        except OSError as error:
            raise _unreadable(self.path, error) from error

    def folder(self, name: str) -> Folder | None:
        """The directory ``name``, None if there is none. Raises ``AttachError``."""
        path = self.path / name
        try:
            descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse_link(name)
            raise _unreadable(path, error) from error
        found = Folder(descriptor, path, self._owner)
        try:
            self._require_owner(os.fstat(descriptor), path)
        except AttachError:
            found.close()
            raise
        return found

    def make(self, name: str) -> Folder:
        """The directory ``name``, made if missing, with this directory's permissions."""
        found = self.folder(name)
        if found is not None:
            return found
        os.mkdir(name, 0o700, dir_fd=self._descriptor)
        descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=self._descriptor)
        made = Folder(descriptor, self.path / name, self._owner)
        status = os.fstat(self._descriptor)
        _give(descriptor, status)
        os.fchmod(descriptor, status.st_mode & 0o777)
        return made

    def read(self, name: str) -> bytes:
        """The bytes of the file ``name``. Raises ``AttachError`` if they cannot be read."""
        content = self.read_if_there(name)
        if content is None:
            raise AttachError(f"cannot read {self.path / name}: {os.strerror(errno.ENOENT)}")
        return content

    def read_if_there(self, name: str) -> bytes | None:
        """The bytes of the file ``name``, None if there is none. Raises ``AttachError``."""
        path = self.path / name
        try:
            descriptor = os.open(name, _FILE, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse_link(name)
            raise _unreadable(path, error) from error
        try:
            self._require_file(os.fstat(descriptor), path)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(_FILE_MAX_BYTES + 1)
        except OSError as error:
            raise _unreadable(path, error) from error
        finally:
            os.close(descriptor)
        if len(content) > _FILE_MAX_BYTES:
            raise AttachError(f"{path} is longer than {_FILE_MAX_BYTES:,} bytes, it does not belong there")
        return content

    def replace(self, name: str, content: bytes, like: os.stat_result) -> None:
        """Write ``content`` to ``name`` whole or not at all, with the mode and owner of ``like``.

        Raises ``OSError``.
        """
        temporary = f".{name}.{secrets.token_hex(_TOKEN_BYTES)}"
        descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=self._descriptor)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                _give(descriptor, like)
                os.fchmod(descriptor, like.st_mode & 0o777)
                os.fsync(descriptor)
            os.rename(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._descriptor)
            raise

    def leftovers(self, name: str) -> list[str]:
        """The temporary files that a killed ``replace`` of ``name`` left. Raises ``AttachError``.

        Only files of the home's owner or of this process's user: root makes one before giving it away.
        """
        pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{{2 * _TOKEN_BYTES}}}")
        return [found for found in self.names() if pattern.fullmatch(found) and self._is_own(found)]

    def _is_own(self, name: str) -> bool:
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_uid in {self._owner, os.geteuid()}

    def remove(self, name: str) -> None:
        """Remove the file ``name`` if it is there. Raises ``OSError``."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Remove the directory ``name``. Raises ``OSError`` if it is not empty."""
        os.rmdir(name, dir_fd=self._descriptor)

    def status(self, name: str) -> os.stat_result | None:
        """Mode and owner of the file ``name``, None if it is not there. Raises ``AttachError``."""
        try:
            status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._require_file(status, self.path / name)
        return status

    def new_file_status(self) -> os.stat_result:
        """Status for a new file: the directory's owner, readable by everybody."""
        status = os.fstat(self._descriptor)
        return os.stat_result((stat.S_IFREG | _FILE_MODE, *status[1:]))

    def require_writable(self) -> None:
        """Raise ``AttachError`` if no file can be made in it."""
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self._descriptor):
            raise AttachError(f"cannot write to {self.path}: run this as the user that Pulsar belongs to")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_link(self, name: str) -> None:
        with contextlib.suppress(OSError):
            _require_no_link(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False), self.path / name)

    def _require_file(self, status: os.stat_result, path: Path) -> None:
        _require_no_link(status, path)
        if not stat.S_ISREG(status.st_mode):
            raise AttachError(f"cannot read {path}: it is not a file")
        self._require_owner(status, path)

    def _require_owner(self, status: os.stat_result, path: Path) -> None:
        if status.st_uid != self._owner:
            theirs, ours = user_name(status.st_uid), user_name(self._owner)
            raise AttachError(
                f"{path} belongs to {theirs} and the Pulsar home to {ours}: "
                f"if it is Pulsar's, run: chown {ours} {path}"
            )


def _require_no_link(status: os.stat_result, path: Path) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise AttachError(
            f"{path} is a link, and none is followed inside of a Pulsar home: "
            "put what it leads to in its place"
        )


def _give(descriptor: int, like: os.stat_result) -> None:
    # Only root can, and must: Pulsar's own user has to read its files.
    if os.geteuid() == 0:
        os.fchown(descriptor, like.st_uid, like.st_gid)


def _unreadable(path: Path, error: OSError) -> AttachError:
    return AttachError(f"cannot read {path}: {error.strerror or error}")
