"""Acknowledged messages that come again after the broker was killed, or restarted gracefully.

Messages fall due in random order of their place, so acknowledging them leaves holes beside mark-delete. First
they fall due at 5,000 a second, are acknowledged as they come, and kill -9 hits the broker in the middle. A
repeat's age counts from the client's call of acknowledge, so it includes the up to 100 ms for which the
client groups acknowledgements. Then every other one of 50,000 messages is acknowledged, the consumer leaves,
and the broker is restarted by SIGTERM. Cursor settings are Pulsar's defaults.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS, TRACKERS
from bench.harness.waiting import settled, until
from bench.pulsar.stand import PROCESS_START_MS, SUBSCRIPTION, Stand, now_ms

KILL = "kill -9 at 5,000 acknowledgements/s"
GRACEFUL = "graceful restart after 25,000 acknowledged out of order"
RATE_PER_S = 5_000
KILL_MESSAGES, KILL_MESSAGES_QUICK = 25_000, 12_000
KILL_AT = 0.85
"""The part of the messages that has been received when the broker is killed."""
GRACEFUL_MESSAGES = 50_000
FAR_MS = 4 * 3_600_000
SEND_RATE_PER_S = 5_000
"""A cautious guess of a producer's rate: all must be tracked before the first is due."""
PATIENCE_S = 120.0
AGE_TARGET_MS = 200.0


def kill_schedule(count: int, start_ms: int, seed: int) -> NDArray[np.int64]:
    """Rows that fall due at ``RATE_PER_S`` from ``start_ms`` on, in random order of their place."""
    order = np.random.default_rng(seed).permutation(count)
    return np.column_stack(
        [np.arange(count), np.zeros(count, np.int64), start_ms + order * 1000 // RATE_PER_S]
    )


def alternate_schedule(count: int, soon_ms: int, far_ms: int) -> NDArray[np.int64]:
    """Rows: every other one is due soon, the others far away."""
    sequence = np.arange(count)
    return np.column_stack([sequence, np.zeros(count, np.int64), np.where(sequence % 2, far_ms, soon_ms)])


def repeats(before: NDArray[np.void], after: NDArray[np.void], killed_at_ns: int) -> NDArray[np.float64]:
    """The age in ms at the kill of each acknowledgement whose message came again."""
    acked = before[(before["acked_at_ns"] > 0) & (before["acked_at_ns"] < killed_at_ns)]
    again = acked[np.isin(acked["sequence"], after["sequence"])]
    ages: NDArray[np.float64] = (killed_at_ns - again["acked_at_ns"]) / 1e6
    return ages


def lost(count: int, *logs: NDArray[np.void]) -> int:
    """The number of sequence numbers 0 … count - 1 that no log has."""
    return count - len(np.unique(np.concatenate([log["sequence"] for log in logs])))


def due_after_sending_ms(count: int) -> int:
    """A delay long enough to send ``count`` messages before the first is due."""
    return now_ms() + PROCESS_START_MS + count * 1000 // SEND_RATE_PER_S + 2_000


def run_kill(plan: Plan, recorder: Recorder, stand: Stand, seed: int) -> None:
    """Kill the broker in the middle of the acknowledgements."""
    peer = stand.tracker.name
    topic = "acks-kill"
    count = KILL_MESSAGES_QUICK if plan.quick else KILL_MESSAGES
    consumer = stand.consumer(topic)
    stand.send(topic, kill_schedule(count, due_after_sending_ms(count), seed))
    consumer.wait_received(int(count * KILL_AT), PATIENCE_S)
    killed_at_ns = time.time_ns()
    stand.broker.kill()
    consumer.stop(kill=True)
    before = consumer.records()
    stand.broker.start()
    back = stand.consumer(topic)
    until(
        f"the {peer} tracker's backlog to drain",
        lambda: stand.admin.backlog(topic, SUBSCRIPTION) == 0,
        PATIENCE_S,
        interval_s=0.2,
    )
    settled("the messages to end", lambda: back.received, PATIENCE_S)
    back.stop()
    ages = repeats(before, back.records(), killed_at_ns)
    acked = int(((before["acked_at_ns"] > 0) & (before["acked_at_ns"] < killed_at_ns)).sum())
    early = sum(
        int((log["arrived_at_ns"] < log["deliver_at_ms"] * 1_000_000).sum())
        for log in (before, back.records())
    )
    oldest_ms = float(ages.max()) if len(ages) else 0.0

    def add(title: str, unit: str, value: float, target: float | None = None, headline: bool = True) -> None:
        recorder.metric(KILL, title, unit, target=target, headline=headline).add(peer, round(value, 2))

    add("acknowledged ones that came again", "messages", len(ages))
    add("age of the oldest forgotten acknowledgement", "ms", oldest_ms, AGE_TARGET_MS)
    add("lost", "messages", lost(count, before, back.records()), 0)
    add("acknowledged before the kill", "messages", acked, headline=False)
    add("arrived early", "messages", early, 0, headline=False)
    plan.say(f"{peer}, {KILL}: {len(ages):,} of {acked:,} came again, the oldest after {oldest_ms:.0f} ms")


def run_graceful(plan: Plan, recorder: Recorder, stand: Stand) -> None:
    """Restart the broker gracefully after every other message is acknowledged."""
    peer = stand.tracker.name
    topic = "acks-graceful"
    half = GRACEFUL_MESSAGES // 2
    consumer = stand.consumer(topic)
    soon_ms = due_after_sending_ms(GRACEFUL_MESSAGES)
    stand.send(topic, alternate_schedule(GRACEFUL_MESSAGES, soon_ms, now_ms() + FAR_MS))
    consumer.wait_received(half, PATIENCE_S)
    until(
        "the acknowledgements to reach the broker",
        lambda: stand.admin.backlog(topic, SUBSCRIPTION) == half,
        PATIENCE_S,
        interval_s=0.2,
    )
    consumer.stop()
    before = consumer.records()
    stand.broker.stop()
    stopped_at_ns = time.time_ns()
    stand.broker.start()
    back = stand.consumer(topic)
    stand.wait_delayed(topic, half, PATIENCE_S)
    settled("the messages to end", lambda: back.received, PATIENCE_S)
    back.stop()
    again = len(repeats(before, back.records(), stopped_at_ns))
    metric = recorder.metric(GRACEFUL, "acknowledged ones that came again", "messages", target=0)
    metric.add(peer, again)
    plan.say(f"{peer}, {GRACEFUL}: {again:,} of {half:,} came again")


def run(plan: Plan, recorder: Recorder) -> None:
    """Both scenarios on every tracker in each round, each on a broker of its own."""
    recorder.parameters |= {
        "kill_messages": KILL_MESSAGES_QUICK if plan.quick else KILL_MESSAGES,
        "graceful_messages": GRACEFUL_MESSAGES,
    }
    for number, peers in plan.rounds():
        for peer in peers:
            with Stand(TRACKERS[peer]) as stand:
                run_kill(plan, recorder, stand, seed=number)
            with Stand(TRACKERS[peer]) as stand:
                run_graceful(plan, recorder, stand)


BENCH = Bench(
    name="acks",
    measures="which acknowledged messages come again after kill -9 and a graceful restart of the broker",
    takes="12 min",
    takes_quick="5 min",
    peers=(OURS, IN_MEMORY, BUCKET),
    runs=3,
    runs_quick=1,
    run=run,
)
