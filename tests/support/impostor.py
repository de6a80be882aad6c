"""A process of another user that listens where the daemon does; run as a script it is that process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

NOBODY = 65_534


class Impostor:
    """Listens at ``path`` as the user nobody, until the context ends; only root can start one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._path)], stdout=subprocess.PIPE, text=True
        )
        assert self.next_told() == "listening"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._path.unlink()

    def next_told(self) -> str:
        """The bytes that a connection sent before it ended, as text; waits for one."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def _listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(path)
        Path(path).chmod(0o777)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        # The listener counts, not the file's maker.
        server.listen()
        print("listening", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                print(connection.recv(4096), flush=True)


if __name__ == "__main__":
    _listen(sys.argv[1])
