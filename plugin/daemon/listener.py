"""The Unix socket for brokers: made safely, and removed only by its owner.

Invariants: the socket has mode 0600, in a directory in which no other user can rename it; a start takes it
from a dead daemon but never from a live one; only the holder of the lock file beside it makes or removes it;
a connection from another user is refused before a byte is read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path

from tidegate.plugin.errors import SocketInUseError, StartError
from tidegate.plugin.shared.users import user_name

PATH_BYTES_MAX = 107  # sun_path holds 108 bytes with the closing zero
BACKLOG = 64
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_ANSWER_SECONDS = 1.0


class Listener:
    """The bound and listening socket at ``path``; ``close`` removes it."""

    def __init__(self, path: Path) -> None:
        """Bind. Raises ``SocketInUseError`` or ``StartError``."""
        self.path = path.absolute()
        _check_path(self.path)
        self._lock = _lock(lock_path(self.path), self.path)
        try:
            _remove_stale(self.path)
            self.socket = _bind(self.path)
        except BaseException:
            os.close(self._lock)
            raise
        self._inode = self.path.stat().st_ino

    def close(self) -> None:
        """Remove the socket and release the lock."""
        self.socket.close()
        with contextlib.suppress(FileNotFoundError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        os.close(self._lock)


def lock_path(path: Path) -> Path:
    """The file that keeps two daemons from starting with the socket ``path``."""
    return path.with_name(path.name + ".lock")


def peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end, from the kernel."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def peer_process(connection: socket.socket) -> str:
    """The user and the process at the other end, from the kernel, in words. Raises OSError."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return f"uid {uid}, pid {pid}"


def uid_allowed(uid: int) -> bool:
    """True if a process of this user may talk to the daemon: its own user, or root, who may do anything
    anyway.
    """
    return uid in (os.geteuid(), 0)


def _check_path(path: Path) -> None:
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise StartError(
            f"the socket path {path} has {size} bytes, at most {PATH_BYTES_MAX} are possible: shorten it"
        )
    directory = path.parent
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.stat()
    except OSError as error:
        raise StartError(
            f"cannot use the socket directory {directory}: {error.strerror}; let root make it "
            f"(install -d -m 700 -o {user_name(os.geteuid())} {directory}), or choose another --socket"
        ) from error
    if status.st_uid not in (os.geteuid(), 0):
        raise StartError(
            f"the socket directory {directory} belongs to another user, {user_name(status.st_uid)}: "
            f"run this as {user_name(status.st_uid)} if the broker runs so, else choose another --socket"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise StartError(f"others can write to the socket directory {directory}, run: chmod go-w {directory}")


def _lock(lock_file: Path, path: Path) -> int:
    try:
        handle = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StartError(
            f"cannot write to the socket directory {path.parent}: {error.strerror}; choose another --socket"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise _in_use(path) from error
    return handle


def _in_use(path: Path) -> SocketInUseError:
    return SocketInUseError(
        f"another daemon answers on {path}: stop it first, or give this one another --socket"
    )


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketInUseError(f"{path} exists and is not a socket: choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                path.unlink()
                return
            raise SocketInUseError(
                f"cannot tell whether a daemon answers on {path}: {error.strerror or error}; "
                "stop what listens there, or choose another --socket"
            ) from error
    raise _in_use(path)


def _bind(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # so that the socket never exists with a wider mode
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise StartError(
            f"cannot make the socket {path}: {error.strerror}; choose another --socket"
        ) from error
    finally:
        os.umask(before)
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening
