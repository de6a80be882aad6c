"""Processor time of broker and daemon for a message: its fill, and its burst when due.

The fill: 100,000 messages that wait for an hour or more, with one and ten subscriptions, until every tracker
has all. The burst: as many due at one instant, until the broker has every acknowledgement. The kernel's
clocks of each thread measure; Flight Recorder and py-spy divide the time among tasks. The bookie is in the
broker's process; clients do not count, nor do waits, which a busy machine changes. Some percents are a
handful of samples.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.cost import account, clocks, samples
from bench.cost.account import BROKER, DAEMON
from bench.cost.clocks import ThreadTime
from bench.cost.samples import Stacks
from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.results import Flame
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS, TRACKERS
from bench.harness.waiting import until
from bench.pulsar.stand import PROCESS_START_MS, Stand, now_ms

OURS_WITH_LOG = "tidegate, index log"
PEERS = TRACKERS | {
    OURS_WITH_LOG: replace(TRACKERS[OURS], name=OURS_WITH_LOG, conf={"tidegateIndexLog": "bookkeeper"})
}
MESSAGES, MESSAGES_QUICK = 100_000, 20_000
WARM_UP = 20_000
MANY = 10
HOUR_MS = 3_600_000
CAUTION = 2
"""A burst's messages may take this much longer to send than those of the fill."""
PATIENCE_S = 240.0
UNIT = "µs a message"
FILL, BURST = "fill, one subscription", "burst"
LEAST = 0.03
"""Of a flame graph: what is less joins what called it."""


@dataclass(frozen=True)
class Profile:
    """The processor time of a phase by thread, and its samples, of broker and daemon."""

    broker: Mapping[int, ThreadTime]
    broker_stacks: Stacks
    daemon: Mapping[int, ThreadTime]
    daemon_stacks: Stacks


def schedule(deliver_at_ms: NDArray[np.int64], first_sequence: int = 0) -> NDArray[np.int64]:
    """Rows for bench.pulsar.producer, sent at once."""
    sequence = first_sequence + np.arange(len(deliver_at_ms))
    return np.column_stack([sequence, np.zeros(len(sequence), np.int64), deliver_at_ms])


def spread(count: int, first_ms: int, span_ms: int, seed: int) -> NDArray[np.int64]:
    """Due times evenly over a span, in no order."""
    return first_ms + np.random.default_rng(seed).permutation(count).astype(np.int64) * span_ms // count


def profiled(stand: Stand, work: Callable[[], None]) -> Profile:
    """Do the work, and return its cost."""
    broker_pid = stand.broker.pid
    daemon_pid = stand.daemon.pid if stand.daemon is not None else None

    def read() -> tuple[dict[int, ThreadTime], dict[int, ThreadTime]]:
        return clocks.read(broker_pid), clocks.read(daemon_pid) if daemon_pid is not None else {}

    with samples.recorded(broker_pid, daemon_pid, stand.folder) as (java, python):
        before = read()
        work()
        after = read()
    return Profile(
        clocks.spent(before[0], after[0]),
        samples.of_java(java),
        clocks.spent(before[1], after[1]),
        samples.of_python(python) if daemon_pid is not None else Stacks(),
    )


def warm_up(stand: Stand) -> None:
    """Send and receive unmeasured messages of another topic, twice."""
    consumer = stand.consumer("warm-up")
    for number in range(2):
        at_ms = spread(WARM_UP, now_ms() + PROCESS_START_MS + 2_000, 1_000, number)
        stand.send("warm-up", schedule(at_ms, number * WARM_UP))
    consumer.wait_received(2 * WARM_UP, PATIENCE_S)
    consumer.stop()


def fill(stand: Stand, count: int, subscriptions: int, seed: int) -> tuple[Profile, float]:
    """Messages that wait, told to so many subscriptions; returns the rate of sending, too."""
    per_s = 0.0
    topic = f"fill-{subscriptions}"
    names = [f"subscription-{number}" for number in range(subscriptions)]
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.callback(stand.consumer(topic, name).stop)
        rows = schedule(spread(count, now_ms() + HOUR_MS, HOUR_MS, seed))

        def work() -> None:
            nonlocal per_s
            per_s = stand.send(topic, rows).per_s
            for name in names:
                until(
                    f"the {stand.tracker.name} tracker to take the messages of {name}",
                    lambda name=name: stand.admin.delayed(topic, name) >= count,  # type: ignore[misc]
                    PATIENCE_S,
                    interval_s=0.25,
                )

        return profiled(stand, work), per_s


def burst(stand: Stand, count: int, per_s: float) -> Profile:
    """Messages that fall due at one instant, and are acknowledged. `per_s`: the rate of sending them."""
    topic = "burst"
    consumer = stand.consumer(topic)
    due_ms = now_ms() + PROCESS_START_MS + 8_000 + int(CAUTION * count / per_s * 1000)
    stand.send(topic, schedule(np.full(count, due_ms, np.int64)))
    if now_ms() > due_ms - 3_000:
        raise BenchError("the burst began before all was sent: this machine is too busy")
    time.sleep((due_ms - now_ms() - 2_000) / 1e3)  # the burst's moment is the clock's

    def work() -> None:
        consumer.wait_received(count, PATIENCE_S)
        until(
            "every acknowledgement to reach the broker",
            lambda: stand.admin.backlog(topic, "bench") == 0,
            PATIENCE_S,
            interval_s=0.25,
        )

    found = profiled(stand, work)
    consumer.stop()
    return found


def record(recorder: Recorder, scenario: str, peer: str, count: int, profile: Profile) -> str:
    """Turn a phase's profile into metrics; returns its sums in words."""
    sums = {}
    for process, times, stacks, rules in (
        ("broker", profile.broker, profile.broker_stacks, BROKER),
        ("daemon", profile.daemon, profile.daemon_stacks, DAEMON),
    ):
        tasks = account.by_task(times, stacks, rules) if times else {}
        sums[process] = sum(tasks.values()) / count
        for task, us in tasks.items():
            recorder.metric(scenario, f"{process}: {task}", UNIT).add(peer, round(us / count, 2))
    total = recorder.metric(scenario, "broker and daemon", UNIT)
    total.add(peer, round(sum(sums.values()), 2))
    return ", ".join(f"{process} {us:.1f}" for process, us in sums.items() if us)


def in_order(recorder: Recorder) -> None:
    """Sort the metrics of each scenario: the sum first, then by the most that any peer spends."""
    scenarios = list(dict.fromkeys(metric.scenario for metric in recorder.metrics))
    recorder.metrics.sort(
        key=lambda metric: (
            scenarios.index(metric.scenario),
            ":" in metric.title,
            metric.title.startswith("daemon"),
            -max(max(values) for values in metric.samples.values()),
        )
    )


def run(plan: Plan, recorder: Recorder) -> None:
    """Every phase with every tracker, each on a broker of its own."""
    count = plan.entries[0] if plan.entries else MESSAGES_QUICK if plan.quick else MESSAGES
    recorder.parameters["messages"] = count
    for number, peers in plan.rounds():
        for peer in peers:
            with Stand(PEERS[peer]) as stand:
                warm_up(stand)
                one, per_s = fill(stand, count, 1, number)
                ten, _ = fill(stand, count, MANY, number)
                profiles = {FILL: one, "fill, ten subscriptions": ten, BURST: burst(stand, count, per_s)}
                for scenario, profile in profiles.items():
                    said = record(recorder, scenario, peer, count, profile)
                    plan.say(f"{peer}, {scenario}: {said} {UNIT}")
                    if number == 0 and scenario in (FILL, BURST) and peer in (OURS, IN_MEMORY):
                        recorder.flames.append(flames(scenario, peer, count, profile))
    in_order(recorder)


def flames(scenario: str, peer: str, count: int, profile: Profile) -> Flame:
    """The flame graph of a phase: both processes side by side."""
    roots = [account.flame("broker", profile.broker, profile.broker_stacks, divisor=count, least=LEAST)]
    if profile.daemon:
        roots.append(
            account.flame("daemon", profile.daemon, profile.daemon_stacks, divisor=count, least=LEAST)
        )
    return Flame(scenario=scenario, peer=peer, unit=UNIT, roots=roots)


BENCH = Bench(
    name="cost",
    measures="processor time of broker and daemon a message, by task: publishing, and a burst of due ones",
    takes="8 min",
    takes_quick="4 min",
    peers=(OURS, OURS_WITH_LOG, IN_MEMORY, BUCKET),
    runs=1,
    runs_quick=1,
    run=run,
    takes_entries=True,
)
