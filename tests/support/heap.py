"""Live objects on the heap of a JVM."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter

_LINE = re.compile(r"^\s*\d+:\s+(?P<count>\d+)\s+\d+\s+(?P<name>\S+)", re.M)


def live_objects(pid: int, package: str) -> Counter[str]:
    """How many objects of each class in ``package`` or below are reachable, after a full collection.

    The names are without their packages.
    """
    jcmd = shutil.which("jcmd")
    assert jcmd is not None, "no jcmd found: install a whole JDK, not only its runtime"
    done = subprocess.run(
        [jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, timeout=180, check=True
    )
    return Counter(
        {
            found["name"].rpartition(".")[2]: int(found["count"])
            for found in _LINE.finditer(done.stdout)
            if found["name"].startswith(f"{package}.")
        }
    )
