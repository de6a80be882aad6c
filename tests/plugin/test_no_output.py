"""A disk that is full, an output that is closed, a directory that is gone: one line each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.daemons import START_SECONDS, DaemonProcess
from tidegate.plugin.local.daemon import without_settings

COMMAND = (sys.executable, "-m", "tidegate.plugin.cli")


def end_of(command: list[str | bytes], cwd: Path) -> subprocess.CompletedProcess[str]:
    """The end of a command."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
        env=without_settings(os.environ),
        cwd=cwd,
    )


@pytest.mark.parametrize("command", ["drill list", "--help"])
def test_a_full_output(tmp_path: Path, command: str) -> None:
    done = end_of(["/bin/sh", "-c", f'exec "$0" "$@" {command} >/dev/full', *COMMAND], tmp_path)
    assert done.stderr == "tidegate: cannot write what there is to say: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["drill list", "--help"])
def test_a_closed_output(tmp_path: Path, command: str) -> None:
    done = end_of(["/bin/sh", "-c", f'exec "$0" "$@" {command} >&-', *COMMAND], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["drill list", "--help"])
def test_a_reader_that_has_seen_enough(tmp_path: Path, command: str) -> None:
    """As of `head`: neither a verdict nor a fault."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *command.split()],
        stdout=writer, stderr=subprocess.PIPE, timeout=START_SECONDS, check=False, cwd=tmp_path,
        env=without_settings(os.environ),
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("command", ["attach pulsar --socket /tmp/none", "serve --data data --socket s.sock"])
def test_a_directory_that_is_gone(tmp_path: Path, command: str) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = end_of(["/bin/sh", "-c", 'rmdir "$PWD" && exec "$0" "$@"', *COMMAND, *command.split()], gone)
    assert done.stderr == "tidegate: the directory that this is run in is gone: change to another one\n"
    assert done.returncode == 1


async def test_what_was_typed_is_not_utf_8(
    serve: Callable[..., DaemonProcess], socket_path: Path, tmp_path: Path
) -> None:
    await serve().ready()
    done = end_of([*COMMAND, "width", b"\xff\xfe", "1h", "--socket", str(socket_path)], tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith("is not UTF-8: correct what was typed\n")
    assert len(done.stderr.splitlines()) == 1
