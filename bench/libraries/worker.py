"""One of ``bench.libraries.merge_ways`` in its own process: ``python -m bench.libraries.worker WAY``.

It prints one line of JSON: time and processor time an entry, the library's fixed cost (seconds to import and
warm up, memory), and another thread's wait for the interpreter meanwhile.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import numpy as np

from bench.harness.errors import BenchError
from bench.harness.meters import resident_mib
from bench.harness.worker_process import tell_and_wait
from bench.libraries.merge_ways import WAYS, Bits, Keys, Way, numpy_way, runs_and_held

RUNS = 8
SIZES = {"large": 1 << 19, "small": 1 << 13}
REPEATS = {"large": 15, "small": 300}
WATCH_S = 0.5
NAP_S = 0.0005


def rates(way: Way, runs: list[Keys], held: Bits | None, repeats: int) -> tuple[float, float]:
    """Median ns an entry, and mean processor ns an entry of all threads."""
    count = sum(len(run) for run in runs)
    times, began_cpu_s = [], time.process_time()
    for _ in range(repeats):
        began_s = time.perf_counter()
        way(runs, held)
        times.append(time.perf_counter() - began_s)
    cpu_s = (time.process_time() - began_cpu_s) / repeats
    return float(np.median(times)) * 1e9 / count, cpu_s * 1e9 / count


def longest_wait_ms(way: Way, runs: list[Keys], held: Bits) -> float:
    """The delay with which this thread wakes from naps while another one merges; the 99th percentile."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            way(runs, held)

    worker = threading.Thread(target=work)
    worker.start()
    late = []
    end_s = time.perf_counter() + WATCH_S
    while (now_s := time.perf_counter()) < end_s:
        time.sleep(NAP_S)  # what it takes longer is the figure
        late.append(time.perf_counter() - now_s - NAP_S)
    stop.set()
    worker.join()
    return float(np.quantile(late, 0.99)) * 1e3


def measure(name: str) -> dict[str, Any]:
    """All figures of a way. Raises BenchError if its result differs from NumPy's."""
    inputs = {size: runs_and_held(entries, RUNS) for size, entries in SIZES.items()}
    right = {
        size: (numpy_way()(runs, None), numpy_way()(runs, held)) for size, (runs, held) in inputs.items()
    }
    before_mib, began_s = resident_mib(), time.perf_counter()
    way = WAYS[name][1]()
    first = way(*inputs["small"])
    figures: dict[str, Any] = {
        "warm_up_s": time.perf_counter() - began_s,
        "memory_mib": resident_mib() - before_mib,
    }
    if not np.array_equal(first, right["small"][1]):
        raise BenchError(f"{name} merges wrongly")
    for size, (runs, held) in inputs.items():
        for what, bits, expected in (("merged", None, right[size][0]), ("filtered", held, right[size][1])):
            if not np.array_equal(way(runs, bits), expected):
                raise BenchError(f"{name} merges wrongly ({size}, {what})")
            wall_ns, cpu_ns = rates(way, runs, bits, REPEATS[size])
            figures[f"{size}_{what}_ns"], figures[f"{size}_{what}_cpu_ns"] = wall_ns, cpu_ns
    return figures | {"wait_ms": longest_wait_ms(way, *inputs["large"])}


def main(argv: list[str]) -> None:
    """Measure one way."""
    tell_and_wait(measure(argv[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
