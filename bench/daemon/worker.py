"""The broker's side of ``daemon``: ``python -m bench.daemon.worker NAME DIR COUNT SUBSCRIPTIONS``.

``served`` drives a real ``tidegate serve``: all entries at full speed, in batches to the subscriptions in
turn; the time until DURABLE counts from the first byte offered to the socket, so the daemon's unread input
counts. It then sends more amid a kill -9, restarts the daemon, and asks for due entries. ``few`` sends frames
of ``FEW`` entries, and as many again in batches. ``in-process`` gives the same entries to the index itself.

Invariants: the clock is real; at most ``UNCOMMITTED_MAX`` entries are in transit; memory and processor time
are the daemon's alone, by the kernel.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from bench.daemon.start import took_s
from bench.harness.broker_client import BrokerClient, BrokerStream
from bench.harness.index_driver import UNCOMMITTED_MAX, IndexDriver, subscription_name
from bench.harness.made_entries import Source
from bench.harness.meters import disk_bytes, peak_memory_mib
from bench.harness.waiting import settled, until
from bench.harness.worker_process import tell_and_wait
from bench.scale.steps import BATCH, Figures, fill
from tidegate.index import ManualClock
from tidegate.plugin.daemon.allocator import collect_rarely
from tidegate.plugin.local.daemon import Daemon

HOUR_MS = 3_600_000
SPAN_MS = 7 * 24 * HOUR_MS
MARK = 10_000_000  # latencies are reported by parts of so many entries
MORE = 1_000_000  # sent while the daemon is killed
FEW = 5  # entries of a frame
IDLE_S = 120.0
ROUNDS = 3
IMPORTS = "import tidegate.plugin.cli, tidegate.plugin.commands.daemon, tidegate.plugin.daemon.serve"
START_S = 60.0


def served(folder: Path, count: int, subscriptions: int) -> Figures:
    """Filled at full speed, killed, started again."""
    daemon = Daemon(folder)
    # A hundredth is due already, and held until there is room: a start hands out these first.
    source = Source(SPAN_MS, first_ms=int(time.time() * 1e3) - 2 * HOUR_MS)
    daemon.start()
    try:
        figures = filled(daemon, source, count, subscriptions)
        return figures | killed(daemon, source, count, subscriptions)
    finally:
        daemon.kill()


def in_process(folder: Path, count: int, subscriptions: int) -> Figures:
    """The same without a daemon: its upper limit."""
    with IndexDriver.opened(folder, ManualClock(int(time.time() * 1e3))) as driver:
        indexes = [driver.subscription(number) for number in range(subscriptions)]
        driver.commit_all()
        return fill(driver, indexes, Source(SPAN_MS, first_ms=driver.clock.now_ms() - 2 * HOUR_MS), count)


def few(folder: Path, count: int, subscriptions: int) -> Figures:
    """Frames of few entries, then as many entries in batches: the daemon's processor time of each."""
    daemon = Daemon(folder)
    source = Source(SPAN_MS, first_ms=int(time.time() * 1e3) + HOUR_MS)
    daemon.start()
    try:
        figures: Figures = {}
        with BrokerClient(daemon.socket_path, UNCOMMITTED_MAX) as client:
            streams = opened(client, subscriptions)
            for kind, size, first in (("few", FEW, 0), ("batch", BATCH, count)):
                began_s, began_cpu_s = time.perf_counter(), processor_s(daemon)
                for at, start in enumerate(range(first, first + count, BATCH)):
                    client.add_small(streams[at % subscriptions], source.entries(start, BATCH), size)
                client.all_durable()
                figures[f"{kind}_per_s"] = count / (time.perf_counter() - began_s)
                figures[f"{kind}_cpu_ns"] = (processor_s(daemon) - began_cpu_s) * 1e9 / count
        return figures | {"times_batch": figures["few_cpu_ns"] / figures["batch_cpu_ns"]}
    finally:
        daemon.kill()


def filled(daemon: Daemon, source: Source, count: int, subscriptions: int) -> Figures:
    """Send all entries until they are durable; returns the cost, and the final sizes on disk."""
    marks = []
    with BrokerClient(daemon.socket_path, UNCOMMITTED_MAX) as client:
        streams = opened(client, subscriptions)
        began_s = time.perf_counter()
        for start in range(0, count, BATCH):
            if start and start % MARK == 0:
                marks.append(time.perf_counter())
            send(client, streams, source, start, min(BATCH, count - start))
        client.all_durable()
        lasted_s = time.perf_counter() - began_s
        held_back_s = metric(daemon, "tidegate_read_pause_seconds_total")
        figures: Figures = {
            "adds_per_s": count / lasted_s,
            "slowest_part_per_s": slowest([began_s, *marks, began_s + lasted_s], count),
            "durable_p50_ms": client.latency_ms(0.5),
            "durable_p99_ms": client.latency_ms(0.99),
            "durable_p999_ms": client.latency_ms(0.999),
            "durable_max_ms": client.latency_ms(1.0),
            "held_back_s": held_back_s,
            "held_back_share": held_back_s / lasted_s,
            "cpu_ns": processor_s(daemon) * 1e9 / count,
            "first_disk_bytes_an_entry": disk_bytes(daemon.data_dir) / count,
        }
        figures["idle_s"] = idle(daemon)
    return figures | {
        "memory_mib": peak_memory_mib(daemon.pid),
        "disk_bytes_an_entry": disk_bytes(daemon.data_dir) / count,
    }


def killed(daemon: Daemon, source: Source, count: int, subscriptions: int) -> Figures:
    """Kill -9 amid transit; the time from the new process to the first due entry."""
    with BrokerClient(daemon.socket_path, UNCOMMITTED_MAX) as client:
        streams = opened(client, subscriptions)
        for start in range(count, count + MORE, BATCH):
            send(client, streams, source, start, BATCH)
        daemon.kill()
    since = len(daemon.log_path.read_bytes())
    began_s = time.perf_counter()
    daemon.spawn()
    with until("the daemon's socket", lambda: connected(daemon), START_S, interval_s=0.002) as client:
        accepted_s = time.perf_counter() - began_s
        (stream,) = opened(client, 1, credit=1_000)
        client.until(lambda: bool(stream.due), "DUE")
        first_due_s = time.perf_counter() - began_s
    serving = until("what the daemon says", lambda: said(daemon, since), START_S)
    import_s = min(took_s(sys.executable, "-c", IMPORTS) for _ in range(ROUNDS))
    return {
        "accepted_s": accepted_s,
        "first_due_s": first_due_s,
        "import_s": import_s,
        **{
            f"{part}_s": serving[f"{part}_ms"] / 1e3
            for part in ("loading", "claiming", "store", "indexes", "accepting")
        },
        "first_due_beyond_imports_s": first_due_s - import_s,
    }


def said(daemon: Daemon, since: int) -> dict[str, float] | None:
    """The line of readiness in the daemon's log after ``since`` bytes; None if there is none yet."""
    lines = daemon.log_path.read_bytes()[since:].splitlines(keepends=True)
    events = (json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"\n"))
    return next((event for event in events if event["event"] == "serving"), None)


def opened(client: BrokerClient, subscriptions: int, credit: int = 0) -> list[BrokerStream]:
    """A stream for each subscription, after its answer."""
    streams = [client.open(subscription_name(number), credit=credit) for number in range(subscriptions)]
    client.until(lambda: all(stream.answered for stream in streams), "HELD")
    return streams


def send(client: BrokerClient, streams: list[BrokerStream], source: Source, start: int, count: int) -> None:
    """Send one batch to the next stream."""
    client.add(streams[start // BATCH % len(streams)], source.entries(start, count))


def connected(daemon: Daemon) -> BrokerClient | None:
    """A connection, None while there is no listener."""
    try:
        return BrokerClient(daemon.socket_path, UNCOMMITTED_MAX)
    except (FileNotFoundError, ConnectionRefusedError):
        return None


def slowest(at_s: Sequence[float], count: int) -> float:
    """Entries a second of the slowest part; the last part may be shorter."""
    sizes = [MARK] * (len(at_s) - 2) + [count - MARK * (len(at_s) - 2)]
    return min(size / (end - begin) for size, begin, end in zip(sizes, at_s, at_s[1:], strict=False))


def idle(daemon: Daemon) -> float:
    """Seconds until the daemon has no more compacting and cleaning to do."""
    began_s = time.perf_counter()
    until("compactions", lambda: metric(daemon, "tidegate_slices_crowded") == 0, IDLE_S, interval_s=0.2)
    settled("the size on disk", lambda: disk_bytes(daemon.data_dir), IDLE_S)
    return time.perf_counter() - began_s


def processor_s(daemon: Daemon) -> float:
    """The daemon's processor time."""
    times = psutil.Process(daemon.pid).cpu_times()
    return times.user + times.system


def metric(daemon: Daemon, name: str) -> float:
    """A metric without labels, from the daemon."""
    with urllib.request.urlopen(f"{daemon.url}/metrics", timeout=IDLE_S) as answer:  # noqa: S310 loopback
        text = answer.read().decode()
    return next(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


SCENARIOS: dict[str, Callable[[Path, int, int], Figures]] = {
    "served": served,
    "few": few,
    "in-process": in_process,
}


def main(argv: list[str]) -> None:
    """Run one scenario."""
    collect_rarely()  # as the daemon does
    name, folder, count, subscriptions = argv[0], Path(argv[1]), int(argv[2]), int(argv[3])
    tell_and_wait(SCENARIOS[name](folder, count, subscriptions))


if __name__ == "__main__":
    main(sys.argv[1:])
