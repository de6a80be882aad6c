"""Memory that was used goes back to the system, whatever was freed before."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import numpy as np, psutil
from tidegate.plugin.daemon.allocator import give_back_memory
if {limited}:
    give_back_memory()
process = psutil.Process()
np.ones(30 << 17)  # freed at once: from here on glibc keeps arrays up to this size on the heap
before = process.memory_info().rss
pinned = []
for _ in range(8):
    array = np.ones(3 << 20)
    pinned.append(bytes(200_000))  # keeps the heap from shrinking
    del array
print(max(0, process.memory_info().rss - before) >> 20)
"""


def grown_mib(*, limited: bool) -> int:
    command = [sys.executable, "-c", SCRIPT.format(limited=limited)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_large_arrays_leave_nothing_behind() -> None:
    assert grown_mib(limited=True) < 8
    assert grown_mib(limited=False) > 8, "the C library does this by itself: the module can go"


def test_garbage_is_looked_for_rarely_and_not_at_all_while_starting() -> None:
    code = (
        "import gc\n"
        "from tidegate.plugin.daemon.allocator import collect_nothing_yet, collect_rarely\n"
        "collect_nothing_yet()\n"
        "assert not gc.isenabled()\n"
        "made = [[] for _ in range(100_000)]\n"
        "collect_rarely()\n"
        "assert gc.isenabled() and gc.get_threshold()[0] >= 10_000 and gc.get_freeze_count() > 100_000\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
