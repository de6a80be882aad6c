"""Seconds from a consumer's subscription to the first due message, after kill -9 of the broker.

A million delayed messages are due in hours; a hundred more, the topic's newest, become due while the broker
is down. The time counts from the accepted subscription: the tracker's work before it can deliver. ``entries
read again``: the broker's count of the topic's entries read from BookKeeper since its start, less the
hundred, once the tracker holds all far messages again and the count stands.

A second Bucket peer lets ledgers roll over at once, so that its snapshots exist. Ours is also measured after
kill -9 of the daemon alone.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import (
    BUCKET,
    BUCKET_SEALED,
    BUCKET_STRICT,
    IN_MEMORY,
    IN_MEMORY_STRICT,
    OURS,
    TRACKERS,
)
from bench.harness.waiting import settled
from bench.pulsar.stand import PROCESS_START_MS, SUBSCRIPTION, Consumer, Stand, now_ms

TOPIC = "failover"
MESSAGES, MESSAGES_QUICK = 1_000_000, 60_000
DUE = 100
FAR_MS = (2 * 3_600_000, 24 * 3_600_000)
KILL_BEFORE_DUE_MS = 3_500
DAEMON_KILL_BEFORE_DUE_MS = 9_000
HORIZON_MS = 2_000
PATIENCE_S = 400.0
BROKER = "kill -9 of the broker"
DAEMON = "kill -9 of the daemon"


def far_schedule(count: int, seed: int) -> NDArray[np.int64]:
    """Rows of messages due between 2 and 24 hours from now, in random order, sent at once."""
    due = now_ms() + np.random.default_rng(seed).integers(*FAR_MS, count)
    return np.column_stack([np.arange(count), np.zeros(count, np.int64), due])


def due_schedule(first_sequence: int, deliver_at_ms: int) -> NDArray[np.int64]:
    """Rows of ``DUE`` messages that are due at one instant, sent at once."""
    sequence = first_sequence + np.arange(DUE)
    return np.column_stack([sequence, np.zeros(DUE, np.int64), np.full(DUE, deliver_at_ms)])


def prepare_due(stand: Stand, far: int, first_sequence: int, ahead_ms: int) -> int:
    """Send the due messages and wait until the tracker has them; returns their due time."""
    deliver_at_ms = now_ms() + PROCESS_START_MS + ahead_ms
    stand.send(TOPIC, due_schedule(first_sequence, deliver_at_ms))
    stand.wait_delayed(TOPIC, far + DUE, ahead_ms / 1e3 + 5.0)
    return deliver_at_ms


def sleep_until_ms(moment_ms: int) -> None:
    """Wait for a moment of the wall clock."""
    time.sleep(max(0.0, moment_ms / 1e3 - time.time()))


def kill_broker(
    plan: Plan, recorder: Recorder, stand: Stand, consumer: Consumer, far: int, cycle: int
) -> Consumer:
    """One kill and restart of the broker, measured; returns the new consumer."""
    peer = stand.tracker.name
    first_sequence = far + cycle * DUE
    deliver_at_ms = prepare_due(stand, far, first_sequence, KILL_BEFORE_DUE_MS)
    killed_at_ms = now_ms()
    if killed_at_ms >= deliver_at_ms:
        raise BenchError("the machine is too busy: the messages were due before the broker could be killed")
    stand.broker.kill()
    consumer.stop(kill=True)
    sleep_until_ms(deliver_at_ms + 500)
    restarted_s = time.monotonic()
    stand.broker.start()
    restart_s = time.monotonic() - restarted_s
    back = stand.consumer(TOPIC)
    back.wait_received(DUE, PATIENCE_S)
    records = back.records()
    after_s = np.sort(records["arrived_at_ns"] - back.subscribed_at_ns) / 1e9
    stand.wait_delayed(TOPIC, far, PATIENCE_S)
    read = settled("the broker's reads to end", lambda: stand.admin.entries_read(TOPIC), PATIENCE_S)
    early = int((records["arrived_at_ns"] < records["deliver_at_ms"] * 1_000_000).sum())
    missing = DUE - np.isin(np.arange(first_sequence, first_sequence + DUE), back.records()["sequence"]).sum()

    def add(title: str, unit: str, value: float, target: float | None = None, headline: bool = True) -> None:
        recorder.metric(BROKER, title, unit, target=target, headline=headline).add(peer, round(value, 3))

    add("first due message after subscribing", "s", float(after_s[0]), 1.0)
    add("all 100 due messages", "s", float(after_s[DUE - 1]))
    add("entries read again", "entries", max(0, read - DUE), 500)
    add("arrived early", "messages", early, 0)
    add("lost of the due ones", "messages", int(missing), 0)
    add(
        "delivered twice",
        "messages",
        back.received - len(np.unique(back.records()["sequence"])),
        headline=False,
    )
    add("broker start until healthy", "s", restart_s, headline=False)
    plan.say(
        f"{peer}, {BROKER} {cycle + 1}: first due message {after_s[0]:.2f} s after subscribing, "
        f"all {after_s[DUE - 1]:.2f} s, {max(0, read - DUE):,} entries read again"
    )
    return back


def kill_daemon(
    plan: Plan, recorder: Recorder, stand: Stand, consumer: Consumer, far: int, cycle: int
) -> None:
    """One kill and restart of the daemon under a running broker, measured."""
    assert stand.daemon is not None
    peer = stand.tracker.name
    before = consumer.received
    first_sequence = far + (1000 + cycle) * DUE
    deliver_at_ms = prepare_due(stand, far, first_sequence, DAEMON_KILL_BEFORE_DUE_MS)
    if now_ms() + HORIZON_MS >= deliver_at_ms:
        raise BenchError("the machine is too busy: the messages were near before the daemon could be killed")
    stand.daemon.kill()
    sleep_until_ms(deliver_at_ms + 500)
    spawned_at_ns = time.time_ns()
    stand.daemon.start()
    ready_s = (time.time_ns() - spawned_at_ns) / 1e9
    consumer.wait_received(before + DUE, PATIENCE_S)
    records = consumer.records()
    mine = records[(records["sequence"] >= first_sequence) & (records["sequence"] < first_sequence + DUE)]
    after_s = np.sort(mine["arrived_at_ns"] - spawned_at_ns) / 1e9

    def add(title: str, unit: str, value: float, target: float | None = None, headline: bool = True) -> None:
        recorder.metric(DAEMON, title, unit, target=target, headline=headline).add(peer, round(value, 3))

    add("first due message after the daemon's start", "s", float(after_s[0]))
    add("daemon ready after", "s", ready_s)
    add("all 100 due messages", "s", float(after_s[-1]))
    add("lost of the due ones", "messages", DUE - len(np.unique(mine["sequence"])), 0)
    plan.say(
        f"{peer}, {DAEMON} {cycle + 1}: ready {ready_s:.2f} s, first due message {after_s[0]:.2f} s after"
    )


def run(plan: Plan, recorder: Recorder) -> None:
    """For each tracker: send the far messages once, then kill and restart ``runs`` times."""
    far = MESSAGES_QUICK if plan.quick else MESSAGES
    recorder.parameters |= {"far_messages": far, "due_messages": DUE}
    for peer in plan.peers:
        with Stand(TRACKERS[peer]) as stand:
            consumer = stand.consumer(TOPIC)
            began_s = time.monotonic()
            stand.send(TOPIC, far_schedule(far, seed=1))
            stand.wait_delayed(TOPIC, far, PATIENCE_S)
            plan.say(
                f"{peer}: {far:,} delayed messages sent and tracked in {time.monotonic() - began_s:.0f} s"
            )
            for cycle in range(plan.runs):
                consumer = kill_broker(plan, recorder, stand, consumer, far, cycle)
            if stand.daemon is not None:
                for cycle in range(plan.runs):
                    kill_daemon(plan, recorder, stand, consumer, far, cycle)
            recorder.metric(BROKER, "delayed messages at the end", "messages", headline=False).add(
                peer, stand.admin.delayed(TOPIC, SUBSCRIPTION)
            )


BENCH = Bench(
    name="failover",
    measures="seconds to the first due message after kill -9 with 1 M delayed ones, and entries read again",
    takes="25 min",
    takes_quick="4 min",
    peers=(OURS, IN_MEMORY, BUCKET, BUCKET_SEALED),
    more_peers=(IN_MEMORY_STRICT, BUCKET_STRICT),
    runs=3,
    runs_quick=1,
    run=run,
)
