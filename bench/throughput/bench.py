"""The speed of publishing delayed messages, and of delivering them once due, end to end.

The same producer, consumer and broker with each tracker. One producer sends as fast as the broker confirms,
beside the consumer's subscription; memory is read once the tracker holds everything; then messages fall due:
all at one instant, or evenly over some seconds and in random order of their place. Delivery ends when the
broker has every acknowledgement. Messages of another topic warm the broker up, twice; the second speed
decides a scenario's deliver_at. The quick run has neither warm-up nor second scenario.

Pulsar's trackers may begin up to one tick (1 s) early: the rate counts from the first message, and early ones
are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError, DeadlineError
from bench.harness.trackers import BUCKET, BUCKET_STRICT, IN_MEMORY, IN_MEMORY_STRICT, OURS, TRACKERS
from bench.harness.waiting import settled, until
from bench.pulsar import receipts
from bench.pulsar.stand import PROCESS_START_MS, SUBSCRIPTION, Sent, Stand, now_ms
from bench.throughput import broker_memory
from bench.throughput.broker_memory import MIB, BrokerMemory

MESSAGES, MESSAGES_QUICK = 200_000, 20_000
SPREAD_MESSAGES, SPREAD_S = 100_000, 15
WARM_UP, WARM_UPS = 20_000, 2
WARM_UP_DELAY_MS = 4_000
COLD_PER_S = 6_000.0
"""What a broker that has just started takes a second, at least."""
SETTLE_MS, SETTLE_QUICK_MS = 5_000, 3_000
"""From the last message sent until the first is due: the tracker gets the rest, memory is read."""
CAUTION = 1.25
"""A scenario may take this much longer to send than the rate before says."""
PATIENCE_S = 90.0


@dataclass(frozen=True)
class Scenario:
    """The number of messages, and the seconds over which they fall due."""

    title: str
    topic: str
    count: int
    spread_s: int


@dataclass(frozen=True)
class Waiting:
    """While all messages wait: the number in the tracker, and the memory of the broker and of our daemon."""

    held: int
    broker: BrokerMemory
    daemon_bytes: int


def due_times(count: int, first_ms: int, spread_s: int, seed: int) -> NDArray[np.int64]:
    """The due time of each message: all at ``first_ms``, or evenly over the seconds after it, shuffled."""
    order = np.random.default_rng(seed).permutation(count)
    return (first_ms + order * (spread_s * 1000) // count).astype(np.int64)


def rows(deliver_at_ms: NDArray[np.int64], first_sequence: int = 0) -> NDArray[np.int64]:
    """A schedule (bench.pulsar.producer) that is sent at once."""
    count = len(deliver_at_ms)
    sequence = first_sequence + np.arange(count)
    return np.column_stack([sequence, np.zeros(count, np.int64), deliver_at_ms])


def warm_up(stand: Stand) -> float:
    """Send and receive unmeasured messages; returns the rate of sending at the end, in messages a second."""
    topic = "warm-up"
    consumer = stand.consumer(topic)
    first_ms = now_ms() + PROCESS_START_MS + WARM_UP_DELAY_MS
    for number in range(WARM_UPS):
        deliver_at_ms = due_times(WARM_UP, first_ms, 1, seed=number)
        sent = stand.send(topic, rows(deliver_at_ms, first_sequence=number * WARM_UP))
    consumer.wait_received(WARM_UPS * WARM_UP, PATIENCE_S)
    consumer.stop()
    return sent.per_s


def wait(stand: Stand, topic: str) -> Waiting:
    """Return once the tracker holds everything, with the memory that this takes."""
    held = settled(
        f"the {stand.tracker.name} tracker to take the messages",
        lambda: stand.admin.delayed(topic, SUBSCRIPTION),
        PATIENCE_S,
        quiet_s=1.0,
    )
    memory = broker_memory.read(stand.broker.pid, stand.broker.admin_url)
    daemon_bytes = broker_memory.resident_bytes(stand.daemon.pid) if stand.daemon is not None else 0
    return Waiting(held, memory, daemon_bytes)


def record(
    recorder: Recorder, scenario: Scenario, peer: str, sent: Sent, waiting: Waiting, records: NDArray[np.void]
) -> None:
    """Turn one scenario's measurements into metrics."""
    late_ms = receipts.lateness_ms(records)
    distinct = len(np.unique(records["sequence"]))
    first_ns, last_ns = int(records["arrived_at_ns"].min()), int(records["acked_at_ns"].max())
    first_late_ms = float(late_ms[records["arrived_at_ns"].argmin()])
    last_due_ms = int(records["deliver_at_ms"].max())
    memory = waiting.broker

    def add(
        title: str,
        unit: str,
        value: float,
        *,
        higher: bool = False,
        target: float | None = None,
        headline: bool = True,
    ) -> None:
        metric = recorder.metric(
            scenario.title,
            title,
            unit,
            better="higher" if higher else "lower",
            target=target,
            headline=headline,
        )
        metric.add(peer, round(float(value), 2))

    add("published", "messages/s", sent.per_s, higher=True)
    rate = distinct / ((last_ns - first_ns) / 1e9)
    # Where messages fall due evenly, their time says nothing of the possible speed.
    add("delivered and acknowledged", "messages/s", rate, higher=True, headline=not scenario.spread_s)
    add("first message", "ms after it was due", first_late_ms)
    add("last acknowledgement", "s after the last was due", (last_ns / 1e6 - last_due_ms) / 1e3)
    add("lateness p50", "ms", float(np.quantile(late_ms, 0.5)))
    add("lateness p99", "ms", float(np.quantile(late_ms, 0.99)))
    add("arrived early", "messages", int((late_ms < 0).sum()), target=0)
    add("lost", "messages", sent.count - distinct, target=0)
    add("duplicated", "messages", len(records) - distinct)
    add("held by the tracker while all wait", "messages", waiting.held, higher=True)
    add("broker's heap while all wait", "MiB", memory.heap_bytes / MIB)
    add("broker's direct memory", "MiB", memory.direct_bytes / MIB)
    resident_bytes = memory.resident_bytes + waiting.daemon_bytes
    add("resident, broker and daemon", "MiB", resident_bytes / MIB)
    if waiting.daemon_bytes:
        add("resident, daemon alone", "MiB", waiting.daemon_bytes / MIB, headline=False)


def measure(
    plan: Plan, recorder: Recorder, stand: Stand, scenario: Scenario, *, per_s: float, seed: int
) -> float:
    """One scenario on a stand that takes about ``per_s`` messages a second; returns its measured rate."""
    peer, topic = stand.tracker.name, scenario.topic
    consumer = stand.consumer(topic)
    first_ms = now_ms() + PROCESS_START_MS + int(CAUTION * scenario.count / per_s * 1000)
    first_ms += SETTLE_QUICK_MS if plan.quick else SETTLE_MS
    sent = stand.send(topic, rows(due_times(scenario.count, first_ms, scenario.spread_s, seed)))
    waiting = wait(stand, topic)
    if now_ms() >= first_ms - 1_000:
        recorder.note(
            f"{peer}, {scenario.title}: a round was still being sent or tracked when the first was due"
        )
    try:
        consumer.wait_received(scenario.count, scenario.spread_s + PATIENCE_S)
        until(
            "every acknowledgement to reach the broker",
            lambda: stand.admin.backlog(topic, SUBSCRIPTION) == 0,
            PATIENCE_S,
            interval_s=0.2,
        )
    except DeadlineError as error:
        plan.say(f"{peer}, {scenario.title}: {error}")
    consumer.stop()
    records = consumer.records()
    if not len(records):
        raise BenchError(f"{peer} delivered nothing of {scenario.count:,} messages: {stand.last_words()}")
    record(recorder, scenario, peer, sent, waiting, records)
    took_s = (records["acked_at_ns"].max() - records["arrived_at_ns"].min()) / 1e9
    plan.say(
        f"{peer}, {scenario.title}: {sent.per_s:,.0f} a second published, {waiting.held:,} held, all "
        f"delivered within {took_s:.1f} s, {(receipts.lateness_ms(records) < 0).sum():,} early"
    )
    return sent.per_s


def run(plan: Plan, recorder: Recorder) -> None:
    """The scenarios on every tracker in each round, on a broker of the round's own."""
    if plan.quick:
        scenarios = [Scenario("all due at one instant", "instant", MESSAGES_QUICK, 0)]
    else:
        scenarios = [
            Scenario("all due at one instant", "instant", MESSAGES, 0),
            Scenario(f"due evenly over {SPREAD_S} s", "spread", SPREAD_MESSAGES, SPREAD_S),
        ]
        recorder.parameters |= {"warm_up_messages": WARM_UPS * WARM_UP}
    recorder.parameters |= {f"messages, {scenario.title}": scenario.count for scenario in scenarios}
    for number, peers in plan.rounds():
        for peer in peers:
            with Stand(TRACKERS[peer]) as stand:
                per_s = COLD_PER_S if plan.quick else warm_up(stand)
                for scenario in scenarios:
                    per_s = measure(plan, recorder, stand, scenario, per_s=per_s, seed=number)


BENCH = Bench(
    name="throughput",
    measures="messages a second published and delivered end to end, and memory while they wait",
    takes="8 min",
    takes_quick="1 min",
    peers=(OURS, IN_MEMORY, BUCKET),
    more_peers=(IN_MEMORY_STRICT, BUCKET_STRICT),
    runs=2,
    runs_quick=1,
    run=run,
)
