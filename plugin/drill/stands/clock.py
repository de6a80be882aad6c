"""A settable clock for one process: the preloaded ``clock.c`` reads how far it is ahead.

libfaketime, which does this too, takes a global lock at each look at a clock: a broker had not started after
two minutes.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("clock.c")
_AHEAD_NS = struct.Struct("=q")
_COMPILE_TIMEOUT_S = 60.0


class ClockError(Exception):
    """It cannot be built; the message says why."""


def build_clock(directory: Path) -> Path:
    """Compile the library into ``directory``. Raises ``ClockError``."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise ClockError("no C compiler (cc) was found; Debian: apt-get install gcc libc6-dev")
    directory.mkdir(parents=True, exist_ok=True)
    library = directory / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=True)  # noqa: S603
    except subprocess.CalledProcessError as error:
        raise ClockError(f"{compiler} could not build the clock: {error.stderr.strip()[-200:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClockError(f"{compiler} could not build the clock: {error}") from error
    return library


class SetClock:
    """The clock of one process; start the process with ``environment``."""

    def __init__(self, library: Path, file: Path) -> None:
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.set(0.0)
        self.environment = {"LD_PRELOAD": str(library), "TIDEGATE_TEST_CLOCK": str(file)}

    def set(self, ahead_s: float) -> None:
        """From its next look on it is ``ahead_s`` ahead of this machine's; negative is behind."""
        # One aligned write of eight bytes: a look sees the old or the new value.
        os.pwrite(self._descriptor, _AHEAD_NS.pack(round(ahead_s * 1e9)), 0)

    def close(self) -> None:
        """Close the file; the clock keeps its value."""
        os.close(self._descriptor)
