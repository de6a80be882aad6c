"""The clock of one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tidegate.plugin.drill.stands.clock import SetClock, build_clock


def test_the_clock_of_one_process_is_set_and_nobody_elses(tmp_path: Path) -> None:
    library = build_clock(tmp_path)
    clock = SetClock(library, tmp_path / "ahead")
    program = "import sys, time; [print(time.time(), time.monotonic(), flush=True) for _ in sys.stdin]"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for ahead_s in (0.0, 3_600.0, -7.5, 0.0):
            clock.set(ahead_s)
            before_s, steady_s = time.time(), time.monotonic()
            child.stdin.write("\n")
            child.stdin.flush()
            told_s, monotonic_s = map(float, child.stdout.readline().split())
            assert before_s <= told_s - ahead_s <= time.time()
            assert steady_s <= monotonic_s <= time.monotonic()
    clock.close()
