"""A small file system in memory that can be filled: for the daemon's data directory.

It is mounted in the mount namespace of our helper process, and vanishes with it. That process reads its
standard input until our end, however we end. Run as a program: DIRECTORY SIZE_BYTES.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

_PIECE_BYTES = 1 << 16


class SmallDiskError(Exception):
    """It could not be mounted."""


class SmallDisk:
    """Processes started with ``prefix`` see ``directory`` as the small disk."""

    def __init__(self, directory: Path, size_bytes: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._holder = subprocess.Popen(  # noqa: S603
            ["unshare", "--mount", sys.executable, "-I", __file__, str(directory), str(size_bytes)],  # noqa: S607
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        said = self._holder.stdout.readline().strip() if self._holder.stdout is not None else ""
        if said != "mounted":
            self.close()
            raise SmallDiskError(f"a small disk could not be mounted: {said}")

    @property
    def prefix(self) -> list[str]:
        """The prefix of a command that must see it."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--"]

    @property
    def inside(self) -> Path:
        """A path to the directory from outside."""
        return Path(f"/proc/{self._holder.pid}/root{self._directory}")

    def fill(self) -> int:
        """Write until there is no room; returns the number of bytes."""
        written = 0
        with (self.inside / "ballast").open("ab", buffering=0) as file:
            for piece_bytes in (_PIECE_BYTES, 1):
                while True:
                    try:
                        written += file.write(bytes(piece_bytes)) or 0
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
        return written

    def free(self) -> None:
        """Delete the file that fills it."""
        (self.inside / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        for stream in (self._holder.stdin, self._holder.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._holder.wait()


def main() -> None:
    """Mount, report it, and wait for the end of the input."""
    directory, size_bytes = sys.argv[1:]
    options = f"size={int(size_bytes)},mode=0700"
    mounted = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", options, "none", directory],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    print(mounted.stderr.strip() if mounted.returncode else "mounted", flush=True)
    if mounted.returncode == 0:
        os.read(0, 1)


if __name__ == "__main__":
    main()
