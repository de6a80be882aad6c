"""The socket: its mode, its directory, a dead daemon's left-over, a live one's."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from tidegate.plugin.daemon.listener import PATH_BYTES_MAX, Listener
from tidegate.plugin.errors import SocketInUseError, StartError


def test_only_the_owner_may_connect_and_nothing_is_left_behind(socket_path: Path) -> None:
    listener = Listener(socket_path)
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    listener.close()
    assert not socket_path.exists()


def test_missing_directories_are_made_for_the_owner_only(short_dir: Path) -> None:
    path = short_dir / "a" / "b" / "s"
    Listener(path).close()
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_dead_daemons_socket_is_taken_over(socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path))
    assert socket_path.is_socket()
    listener = Listener(socket_path)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(socket_path))
    listener.close()


def test_a_live_daemons_socket_is_not(socket_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(socket_path))
        alive.listen()
        with pytest.raises(SocketInUseError, match="another daemon answers on"):
            Listener(socket_path)
        assert socket_path.is_socket()


def test_two_daemons_that_start_at_once(socket_path: Path) -> None:
    first = Listener(socket_path)
    socket_path.unlink()  # as if the second one looked before the first one had bound
    with pytest.raises(SocketInUseError, match="another daemon answers on"):
        Listener(socket_path)
    first.close()


def test_a_socket_that_is_not_ours_any_more_is_left_alone(socket_path: Path) -> None:
    listener = Listener(socket_path)
    socket_path.unlink()
    socket_path.write_text("something else", "utf-8")
    listener.close()
    assert socket_path.read_text("utf-8") == "something else"


def test_a_file_in_the_way_is_never_removed(socket_path: Path) -> None:
    socket_path.write_text("precious", "utf-8")
    with pytest.raises(SocketInUseError, match="not a socket"):
        Listener(socket_path)
    assert socket_path.read_text("utf-8") == "precious"


def test_a_path_that_is_too_long(short_dir: Path) -> None:
    longest = short_dir / ("x" * (PATH_BYTES_MAX - len(os.fsencode(short_dir)) - 1))
    Listener(longest).close()
    with pytest.raises(StartError, match=f"{PATH_BYTES_MAX + 1} bytes, at most {PATH_BYTES_MAX}"):
        Listener(longest.with_name(longest.name + "x"))


def test_a_directory_that_others_can_write_to(short_dir: Path, socket_path: Path) -> None:
    short_dir.chmod(0o777)
    with pytest.raises(StartError, match="chmod go-w"):
        Listener(socket_path)
    short_dir.chmod(0o1777)
    Listener(socket_path).close()


def test_a_directory_that_cannot_be_made(short_dir: Path) -> None:
    (short_dir / "file").write_text("", "utf-8")
    with pytest.raises(StartError, match="cannot use the socket directory"):
        Listener(short_dir / "file" / "s")
