"""The working directory of a run of many processes: the demo's, the drills'.

Invariants: one run at a time owns it; only an earlier run's files are deleted, never anybody else's; the
directory for sockets is removed with the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidegate.plugin.shared.stop import RunError

_LOCK = ".lock"


@contextlib.contextmanager
def workspace(out_dir: Path, folders: Sequence[str], *, busy: str) -> Iterator[Path]:
    """Provide ``folders`` of ``out_dir``, empty and for this run alone; yields a short directory for sockets.

    Raises ``RunError`` if another run owns it (``busy`` says so), it is not writable, or one of the folders
    is somebody else's.
    """
    with contextlib.ExitStack() as stack:
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            _check_ours(out_dir, folders)
            lock = stack.enter_context((out_dir / _LOCK).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in folders:
                shutil.rmtree(out_dir / name, ignore_errors=True)
                (out_dir / name).mkdir()
            # A Unix socket's path has at most about a hundred bytes, and a folder's here may be longer.
            socket_dir = Path(tempfile.mkdtemp(prefix="tidegate-"))
        except BlockingIOError as error:
            raise RunError(f"{busy} in {out_dir}: wait for its end, or choose another --out") from error
        except OSError as error:
            reason = error.strerror or error
            raise RunError(f"cannot write to {out_dir}: {reason}; choose another --out") from error
        stack.callback(shutil.rmtree, socket_dir, ignore_errors=True)
        yield socket_dir


def _check_ours(out_dir: Path, folders: Sequence[str]) -> None:
    if (out_dir / _LOCK).exists():
        return
    for name in folders:
        if (out_dir / name).exists():
            raise RunError(f"{out_dir / name} is there and no run of Tidegate made it: choose another --out")
