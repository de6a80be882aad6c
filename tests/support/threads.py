"""A JVM's threads that wait for a lock, and ours, for a reader of a failed test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_TIMEOUT_S = 60.0
_LINES_MAX = 200
_LOG_BYTES_MAX = 8_000_000
_TELLING = (" WARN ", " ERROR ", "Exception", "Started ")


def threads(pid: int) -> str:
    """The stacks of the threads that are blocked, that are in the shim, or that a start waits in."""
    jstack = shutil.which("jstack")
    if jstack is None:
        return "no jstack to ask"
    try:
        asked = subprocess.run(
            [jstack, "-l", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"jstack had no answer after {_TIMEOUT_S:.0f} s"
    stacks = (asked.stdout or asked.stderr).split("\n\n")
    telling = [
        one for one in stacks if "BLOCKED" in one or "tidegate" in one or one.startswith(('"main"', "Found"))
    ]
    return "\n\n".join(telling) or stacks[0]


def last_lines(log: Path) -> str:
    """The last lines of a broker's log that say what went wrong."""
    with log.open("rb") as opened:
        opened.seek(max(0, log.stat().st_size - _LOG_BYTES_MAX))
        lines = opened.read().decode(errors="replace").splitlines()
    telling = [line[:300] for line in lines if any(word in line for word in _TELLING)]
    return "\n".join([*telling[-_LINES_MAX:], "the very last ones:", *(line[:300] for line in lines[-20:])])
