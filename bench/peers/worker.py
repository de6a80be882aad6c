"""A peer in a process of its own: ``python -m bench.peers.worker PEER PHASE DIR WORKLOAD COUNT``.

`bench.peers.base` describes the phases and their output.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.harness.errors import BenchError
from bench.harness.stats import quantiles
from bench.harness.workloads import START_MS, positions, sequences
from bench.peers import inputs, roster
from bench.peers.base import (
    BATCH,
    DRAIN,
    FAST_TICK_MS,
    FILL,
    LATENESS_PER_S,
    POP_LIMIT,
    RECOVER,
    DrainFigures,
    Figures,
    FillFigures,
    LatenessFigures,
    LatenessQuantiles,
    Peer,
    RecoverFigures,
)
from bench.peers.inputs import Input
from bench.peers.measuring import Measured, Pauses, PeakMemory
from tidegate.index import Entries, Int64Array, ManualClock, SystemClock

BACKLOG_AFTER_MS = 120_000
"""In the lateness phase the backlog falls due this long after the phase has begun: when it is over."""
LEAD_MS = 1_000
FIRST_SEQUENCE = 1 << 40
"""Entries of the lateness phase are numbered from here on."""
ROUNDING_PATIENCE_MS = 35_000
EMPTY_LOOKS = 20
FAR_NS = 50_000_000
"""Without a tick, upkeep runs at least so often."""


@dataclass(frozen=True)
class Settings:
    """The settings in the environment; see `bench.peers.base`."""

    started_ns: int
    budget_s: float
    lateness_s: float
    server_pid: int

    @classmethod
    def read(cls) -> Settings:
        """From the environment, with defaults for a run by hand."""
        return cls(
            started_ns=int(os.environ.get("BENCH_STARTED_NS", time.time_ns())),
            budget_s=float(os.environ.get("BENCH_BUDGET_S", "60")),
            lateness_s=float(os.environ.get("BENCH_LATENESS_S", "10")),
            server_pid=int(os.environ.get("BENCH_SERVER_PID", "0")),
        )


def batches(given: Input) -> Iterator[Input]:
    """Parts of ``BATCH``, the last one shorter."""
    for start in range(0, len(given), BATCH):
        yield given.part(start, min(start + BATCH, len(given)))


def fill(peer: Peer, given: Input, settings: Settings) -> FillFigures:
    """Add everything, each batch durable before the next, until the budget is over."""
    gc.collect()
    measured, pauses = Measured(settings.server_pid), Pauses()
    memory = PeakMemory(measured)
    added, stopped = 0, False
    cpu_s, began_s = measured.cpu_s(), time.perf_counter()
    for part in batches(given):
        if added and time.perf_counter() - began_s > settings.budget_s:
            stopped = True
            break
        with pauses:
            peer.add(part.entries, part.arrive_at_ms)
        peer.maintain()
        added += len(part)
    took_s = time.perf_counter() - began_s
    return FillFigures(
        added=added,
        took_s=took_s,
        adds_per_s=added / took_s,
        cpu_s=measured.cpu_s() - cpu_s,
        rss_before_bytes=memory.before_bytes,
        peak_rss_bytes=memory.stop(),
        longest_pause_ms=pauses.longest_ms,
        stopped=stopped,
        remarks=peer.remarks(),
    )


def recover(peer: Peer, clock: ManualClock, given: Input, settings: Settings, folder: Path) -> RecoverFigures:
    """Pop the first due entries; the clock passes the delay of a tick or a rounding."""
    now_ms = int(given.entries.deliver_at_ms.min()) + 1_000
    last_ms = now_ms + peer.info.slack_ms
    while True:
        clock.set_ms(now_ms)
        popped = peer.pop_due(now_ms, POP_LIMIT)
        if len(popped) or now_ms >= last_ms:
            break
        now_ms += 1_000
    first_pop_s = (time.time_ns() - settings.started_ns) / 1e9
    peer.done(popped)
    peer.flush()
    inputs.note_popped(folder, sequences(popped))
    return RecoverFigures(
        first_pop_s=first_pop_s if len(popped) else None,
        popped=len(popped),
        held_after=peer.count() + len(popped),
    )


@dataclass
class Tally:
    """The entries handed out: how often each, how many early, how many after a later one."""

    deliver_at_ms: Int64Array
    already: Int64Array
    times: npt.NDArray[np.int64] = field(init=False)
    early: int = 0
    out_of_order: int = 0
    _latest_ms: int = -(1 << 62)

    def __post_init__(self) -> None:
        self.times = np.zeros(len(self.deliver_at_ms), dtype=np.int64)
        self.times[self.already[self.already < len(self.times)]] = 1

    def count(self, popped: Entries, now_ms: int) -> None:
        """Count one pop. Raises BenchError if the peer hands out an entry that was never added."""
        sequence = sequences(popped)
        if int(sequence.min()) < 0 or int(sequence.max()) >= len(self.times):
            raise BenchError("the peer hands out an entry that was never added")
        if not np.array_equal(self.deliver_at_ms[sequence], popped.deliver_at_ms):
            raise BenchError("the peer hands out an entry with another deliver_at_ms than it was added with")
        np.add.at(self.times, sequence, 1)
        self.early += int((popped.deliver_at_ms > now_ms).sum())
        latest_ms = np.maximum.accumulate(np.concatenate(([self._latest_ms], popped.deliver_at_ms)))
        self.out_of_order += int((popped.deliver_at_ms < latest_ms[:-1]).sum())
        self._latest_ms = int(latest_ms[-1])


def clock_times(deliver_at_ms: Int64Array, slack_ms: int) -> Iterator[int]:
    """The times of the simulated clock: every 10,000th entry's, the last's, then through the slack."""
    ordered = np.sort(deliver_at_ms)
    yield from ordered[BATCH - 1 :: BATCH].tolist()
    last_ms = int(ordered[-1])
    yield last_ms
    step_ms = max(1, slack_ms // 8)
    yield from range(last_ms + step_ms, last_ms + slack_ms + step_ms, step_ms)


def drain(peer: Peer, clock: ManualClock, given: Input, settings: Settings, folder: Path) -> DrainFigures:
    """Pop all added entries of ``given``, in steps of the clock, until the budget is over."""
    gc.collect()
    measured, pauses = Measured(settings.server_pid), Pauses()
    memory = PeakMemory(measured)
    tally = Tally(given.entries.deliver_at_ms, inputs.popped(folder))
    popped, stopped = 0, False
    cpu_s, began_s = measured.cpu_s(), time.perf_counter()
    for now_ms in clock_times(given.entries.deliver_at_ms, peer.info.slack_ms):
        clock.set_ms(now_ms)
        while not stopped:
            with pauses:
                entries = peer.pop_due(now_ms, POP_LIMIT)
            if not len(entries):
                break
            with pauses:
                peer.done(entries)
            popped += len(entries)
            tally.count(entries, now_ms)
            stopped = time.perf_counter() - began_s > settings.budget_s
        if stopped:
            break
        with pauses:
            peer.maintain()
        stopped = time.perf_counter() - began_s > settings.budget_s
    with pauses:
        peer.flush()
    return DrainFigures(
        popped=popped,
        took_s=pauses.sum_s,
        pops_per_s=popped / pauses.sum_s,
        cpu_s=measured.cpu_s() - cpu_s,
        rss_before_bytes=memory.before_bytes,
        peak_rss_bytes=memory.stop(),
        longest_pause_ms=pauses.longest_ms,
        early=tally.early,
        out_of_order=tally.out_of_order,
        missing=0 if stopped else int((tally.times == 0).sum()),
        again=int((tally.times > 1).sum()),
        stopped=stopped,
    )


class DueLoop:
    """The peer's own loop in real time: on its ticks, or waiting for the earliest entry."""

    def __init__(self, peer: Peer, tick_ms: int) -> None:
        self._peer = peer
        self._tick_ns = tick_ms * 1_000_000
        self._late_ms: list[npt.NDArray[np.floating]] = []
        self._handed_out = 0

    def run(self, count: int, until_ms: int) -> npt.NDArray[np.float64]:
        """Hand out ``count`` entries, or those by ``until_ms``; returns the lateness of each, in ms."""
        while self._handed_out < count and time.time_ns() // 1_000_000 < until_ms:
            self._turn()
        return np.concatenate(self._late_ms) if self._late_ms else np.zeros(0)

    def _turn(self) -> None:
        """Wait for the next look, and hand out all entries due then."""
        self._wait()
        while len(popped := self._peer.pop_due(time.time_ns() // 1_000_000, POP_LIMIT)):
            now_ns = time.time_ns()
            mine = popped.deliver_at_ms[sequences(popped) >= FIRST_SEQUENCE]
            self._late_ms.append(now_ns / 1e6 - mine)
            self._handed_out += len(mine)
            self._peer.done(popped)
        self._peer.maintain()

    def _wait(self) -> None:
        now_ns = time.time_ns()
        if self._tick_ns:  # a wheel's slots end at multiples of its tick; other peers do not mind
            next_ns = (now_ns // self._tick_ns + 1) * self._tick_ns
        else:
            due_ms = self._peer.next_due_ms()
            next_ns = now_ns + FAR_NS if due_ms is None else min(due_ms * 1_000_000, now_ns + FAR_NS)
        time.sleep(max(0, next_ns - now_ns) / 1e9)  # nothing else changes: only time can pass


def in_real_time(
    peer: Peer, seconds: float, tick_ms: int, first_sequence: int
) -> tuple[int, npt.NDArray[np.float64]]:
    """Add entries due evenly over ``seconds`` and hand them out: (their number, the lateness of each)."""
    count = int(seconds * LATENESS_PER_S)
    now_ms = time.time_ns() // 1_000_000
    number = np.arange(count, dtype=np.int64)
    due_ms = now_ms + LEAD_MS + number * 1_000 // LATENESS_PER_S
    for start in range(0, count, BATCH):
        chosen = slice(start, start + BATCH)
        ledger_id, entry_id = positions(first_sequence + number[chosen])
        entries = Entries(due_ms[chosen], ledger_id, entry_id)
        peer.add(entries, np.full(len(entries), now_ms, dtype=np.int64))
    patience_ms = min(peer.info.slack_ms, ROUNDING_PATIENCE_MS) + 5_000
    return count, DueLoop(peer, tick_ms).run(count, int(due_ms[-1]) + patience_ms)


def lateness(peer: Peer, given: Input, settings: Settings) -> LatenessFigures:
    """A backlog that is not due, then entries that fall due in real time."""
    measured = Measured(settings.server_pid)
    now_ms = time.time_ns() // 1_000_000
    began_s = time.perf_counter()
    backlog, stopped = 0, False
    for part in batches(given):
        if time.perf_counter() - began_s > settings.budget_s:
            stopped = True
            break
        due_ms = part.entries.deliver_at_ms - START_MS + now_ms + BACKLOG_AFTER_MS
        moved = Entries(due_ms, part.entries.ledger_id, part.entries.entry_id)
        peer.add(moved, np.full(len(part), now_ms, dtype=np.int64))
        peer.maintain()
        backlog += len(part)
    looks = []
    for _ in range(EMPTY_LOOKS):
        look_ns = time.perf_counter_ns()
        peer.pop_due(time.time_ns() // 1_000_000, POP_LIMIT)
        looks.append((time.perf_counter_ns() - look_ns) / 1e3)
    cpu_s = measured.cpu_s()
    count, late_ms = in_real_time(peer, settings.lateness_s, peer.info.tick_ms, FIRST_SEQUENCE)
    cpu_s = measured.cpu_s() - cpu_s
    figures = three_quantiles(late_ms)
    fast = None
    if peer.info.may_look_faster:
        first_sequence = FIRST_SEQUENCE * 2
        fast = three_quantiles(in_real_time(peer, settings.lateness_s / 2, FAST_TICK_MS, first_sequence)[1])
    return LatenessFigures(
        handed_out=len(late_ms),
        missing=count - len(late_ms),
        early=int((late_ms < 0).sum()),
        p50_ms=figures.p50_ms,
        p99_ms=figures.p99_ms,
        max_ms=figures.max_ms,
        quantiles_ms=quantiles(late_ms),
        cpu_s=cpu_s,
        backlog=backlog,
        empty_look_us=float(np.median(looks)),
        fast=fast,
        stopped=stopped,
    )


def three_quantiles(late_ms: npt.NDArray[np.float64]) -> LatenessQuantiles:
    """Zero without values: `LatenessFigures.handed_out` shows that."""
    p50_ms, p99_ms, max_ms = np.percentile(late_ms, [50, 99, 100]) if len(late_ms) else np.zeros(3)
    return LatenessQuantiles(p50_ms=float(p50_ms), p99_ms=float(p99_ms), max_ms=float(max_ms))


def say(text: str) -> None:
    """Write one line to the parent."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> None:
    """Do one phase, print its figures, then follow standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the bench ends us
    name, phase, folder, _, count = argv[0], argv[1], Path(argv[2]), argv[3], int(argv[4])
    settings = Settings.read()
    data = folder / inputs.DATA
    data.mkdir(exist_ok=True)
    given = inputs.read(folder, count)
    clock = ManualClock(START_MS)
    peer = roster.peer_class(name)(data, clock if phase != "lateness" else SystemClock())
    figures: Figures
    if phase == FILL:
        figures = filled = fill(peer, given, settings)
        given = given.part(0, filled.added)
    elif phase == RECOVER:
        figures = recover(peer, clock, given, settings, folder)
    elif phase == DRAIN:
        figures = drain(peer, clock, given, settings, folder)
    else:
        figures = lateness(peer, given, settings)
    say(figures.model_dump_json())
    for line in sys.stdin:
        if line.strip() == "settle":
            peer.settle()
            say('{"settled": true}')
        elif line.strip() == DRAIN:
            say(drain(peer, clock, given, settings, folder).model_dump_json())
    peer.close()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except BenchError as error:
        sys.stderr.write(f"bench: {error}\n")
        sys.exit(1)
