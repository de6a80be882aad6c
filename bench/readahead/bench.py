"""The time to index a backlog that no index has, and its effect on live traffic meanwhile.

A topic has delayed messages due in hours, and at its end a hundred due already. A consumer comes with a new
subscription (``first attach``); then the topic is unloaded, the tracker's data on it deleted, and the
consumer comes back (``moved, nothing left``). Both times count from the accepted subscription until the first
due message, and until the tracker, and our daemon behind it, holds all the others. The first round's broker
still compiles. Each round has its own subscriptions on the same topic.

Ours runs with reading ahead, its default, and without, where the dispatcher finds each message, as with
Pulsar's trackers: half a minute for a million, so all but ours run one round, and move 100,000 only. The
storage's limit is measured on the same stand: the topic's ledgers by batch reads of the bookie's protocol.

Live traffic is a producer and a consumer of plain messages on another topic of the broker
(``bench.pulsar.live``), with the same polling of statistics either way. A large backlog is read so slowly
that publishers do not feel it; a small one at full speed, once in some minutes: its effect is measured then,
and over a hundred seconds with one of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import numpy as np
import psutil
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.stats import Better
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS, TRACKERS, TrackerPeer
from bench.harness.waiting import until
from bench.pulsar.live import LiveTraffic, Window
from bench.pulsar.stand import Consumer, Stand, now_ms
from bench.readahead.storage import entries_per_s

WITHOUT = "tidegate, dispatcher alone"
STORAGE = "storage"
"""Not a tracker: what batch reads of the topic's ledgers give."""
SIZES, SIZES_QUICK = (100_000, 1_000_000), (100_000,)
DUE = 100
FAR_MS = (2 * 3_600_000, 24 * 3_600_000)
LIVE_PER_S = 500
QUIET_S, QUIET_QUICK_S = 10.0, 4.0
LONG_S = 100.0
"""So long live traffic is looked at around a small backlog."""
SLOW_MS = 20.0
"""A publisher that waits longer than that has felt something."""
WARM_UP_S = 3.0
POLL_S = 0.05
PATIENCE_S = 600.0
TARGETS_S = {
    ("first attach", 1_000_000): 5.0,
    ("moved, nothing left", 100_000): 1.0,
    ("first attach beside live traffic", 100_000): 1.0,
}
"""Seconds until all are held."""
RATE_TARGET = 150_000.0


def peer_of(name: str) -> TrackerPeer:
    """The tracker of that name, and ours without reading ahead."""
    if name == WITHOUT:
        return replace(TRACKERS[OURS], name=WITHOUT, conf={"tidegateReadAhead": "false"})
    return TRACKERS[name]


def schedule(count: int, seed: int) -> NDArray[np.int64]:
    """Rows (bench.pulsar.producer) of far messages in random order of their times, then the due ones."""
    now = now_ms()
    far = now + np.random.default_rng(seed).integers(*FAR_MS, count)
    times = np.concatenate([far, np.full(DUE, now)])
    return np.column_stack([np.arange(count + DUE), np.zeros(count + DUE, np.int64), times])


def cpu_s(stand: Stand) -> float:
    """CPU seconds of the broker (storage included) and the daemon so far."""
    pids = [stand.broker.pid] + ([stand.daemon.pid] if stand.daemon is not None else [])
    try:
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)
    except psutil.Error as error:
        raise BenchError(f"the processor time of broker or daemon cannot be read: {error}") from error


def daemon_holds(stand: Stand, topic: str, subscription: str) -> int:
    """The number of entries of a topic's subscription that the daemon holds."""
    assert stand.daemon is not None
    try:
        text = httpx.get(f"{stand.daemon.url}/metrics", timeout=30.0, trust_env=False).text
    except httpx.HTTPError as error:
        raise BenchError(f"the daemon's metrics cannot be read: {error}") from error
    for line in text.splitlines():
        if (
            line.startswith("tidegate_subscription_entries_held{")
            and f'/{topic}"' in line
            and f'subscription="{subscription}"' in line
        ):
            return int(float(line.rsplit(" ", 1)[1]))
    return 0


def wait_held(stand: Stand, topic: str, subscription: str, count: int) -> None:
    """Return once the tracker, and our daemon behind it, holds so many."""
    until(
        f"{count:,} messages in the {stand.tracker.name} tracker",
        lambda: stand.admin.delayed(topic, subscription) >= count,
        PATIENCE_S,
        interval_s=POLL_S,
    )
    if stand.daemon is not None:
        until(
            f"{count:,} entries in the daemon",
            lambda: daemon_holds(stand, topic, subscription) >= count,
            PATIENCE_S,
            interval_s=POLL_S,
        )


def attach(
    plan: Plan, recorder: Recorder, stand: Stand, topic: str, subscription: str, count: int, what: str
) -> Window:
    """A consumer comes; returns the window in which the backlog was read. Nothing is acknowledged."""
    peer, scenario = stand.tracker.name, f"{what}, {count:,} delayed"
    before_s = cpu_s(stand)
    with coming(stand, topic, subscription) as consumer:
        wait_held(stand, topic, subscription, count)
        held_at_ns = time.time_ns()
        took_s = cpu_s(stand) - before_s
        consumer.wait_received(DUE, PATIENCE_S)
        records = consumer.records()
        began_ns = consumer.subscribed_at_ns
    held_s = (held_at_ns - began_ns) / 1e9
    first_s = (int(records["arrived_at_ns"].min()) - began_ns) / 1e9

    def add(
        title: str,
        unit: str,
        value: float,
        *,
        target: float | None = None,
        higher: bool = False,
        headline: bool = True,
    ) -> None:
        better: Better = "higher" if higher else "lower"
        metric = recorder.metric(scenario, title, unit, better=better, target=target, headline=headline)
        metric.add(peer, round(value, 3))

    add("all are held", "s after subscribing", held_s, target=TARGETS_S.get((what, count)))
    # Both must look like firsts in a picture.
    add("first due message", "s after subscribing", first_s, headline=False)
    add("entries a second", "1/s", round(count / held_s), target=RATE_TARGET, higher=True, headline=False)
    add(
        "arrived early",
        "messages",
        int((records["arrived_at_ns"] < records["deliver_at_ms"] * 1_000_000).sum()),
        target=0,
    )
    add("delivered twice", "messages", len(records) - len(np.unique(records["sequence"])), target=0)
    add("processor time of broker, storage and daemon", "s", took_s, headline=False)
    plan.say(
        f"{peer}, {scenario}: first due {first_s:.2f} s, "
        f"all held {held_s:.2f} s ({count / held_s:,.0f} a second)"
    )
    return Window(began_ns, held_at_ns)


@contextmanager
def coming(stand: Stand, topic: str, subscription: str) -> Iterator[Consumer]:
    """A consumer of the subscription that acknowledges nothing and leaves again."""
    consumer = stand.consumer(topic, subscription, acknowledges=False)
    try:
        yield consumer
    finally:
        consumer.stop()


def forget(stand: Stand, topic: str) -> None:
    """Delete the tracker's data on the topic, and leave it unloaded."""
    if stand.daemon is not None:
        stand.daemon.stop()
        shutil.rmtree(stand.daemon.data_dir)
        stand.daemon.start()
    stand.admin.unload(topic)


def quiet(stand: Stand, topic: str, seconds: float) -> Window:
    """Read nothing, but poll the statistics as during reading."""
    began_ns = time.time_ns()
    while time.time_ns() - began_ns < seconds * 1e9:
        stand.admin.delayed(topic, "nobody")
        if stand.daemon is not None:
            daemon_holds(stand, topic, "nobody")
        time.sleep(POLL_S)  # as often as during reading
    return Window(began_ns, time.time_ns())


def record_live(recorder: Recorder, peer: str, live: LiveTraffic, windows: dict[str, list[Window]]) -> None:
    """The latencies of live traffic in the windows of each kind."""
    messages = live.stop()
    scenario = f"live traffic, {LIVE_PER_S} plain messages a second on another topic"
    for when, parts in windows.items():
        for title, taken_ms in (
            ("publish latency", messages.publish_ms(parts)),
            ("from publishing to arrival", messages.arrival_ms(parts)),
        ):
            for name, quantile in (("p50", 0.5), ("p99", 0.99)):
                drawn = quantile == 0.99 and title == "publish latency"
                metric = recorder.metric(scenario, f"{title} {name}, {when}", "ms", headline=drawn)
                metric.add(peer, round(float(np.quantile(taken_ms, quantile)), 2))
        # One tracker takes seconds for a backlog, another a minute: a quantile hides the number of affected
        # messages.
        slow = int((messages.publish_ms(parts) > SLOW_MS).sum())
        metric = recorder.metric(
            scenario, f"published in more than {SLOW_MS:.0f} ms, {when}", "messages", headline=False
        )
        metric.add(peer, slow)


def measure(plan: Plan, recorder: Recorder, peer: str, *, with_storage: bool) -> None:
    """All rounds of one tracker, on one stand."""
    runs = plan.runs if peer == OURS else 1
    with Stand(peer_of(peer)) as stand:
        topics = {count: f"backlog-{count}" for count in (SIZES_QUICK if plan.quick else SIZES)}
        for count, topic in topics.items():
            stand.consumer(topic, "keeper").stop()
            stand.send(topic, schedule(count, seed=count))
            plan.say(f"{peer}: {count:,} delayed messages sent")
        for number in range(runs):
            for count, topic in topics.items():
                attach(plan, recorder, stand, topic, f"round-{number}", count, "first attach")
                if peer == OURS or count == min(topics):
                    forget(stand, topic)
                    attach(plan, recorder, stand, topic, f"round-{number}", count, "moved, nothing left")
        largest, topic = max(topics.items())
        with LiveTraffic(stand.broker.service_url, stand.folder, LIVE_PER_S) as live:
            time.sleep(WARM_UP_S)  # the first messages are slow: connections, classes
            windows: dict[str, list[Window]] = {"nothing is read": [], "a backlog is read": []}
            for number in range(runs):
                windows["nothing is read"].append(
                    quiet(stand, topic, QUIET_QUICK_S if plan.quick else QUIET_S)
                )
                at_live = attach(
                    plan,
                    recorder,
                    stand,
                    topic,
                    f"live-{number}",
                    largest,
                    "first attach beside live traffic",
                )
                windows["a backlog is read"].append(at_live)
            if not plan.quick:
                windows |= around_a_small_one(plan, recorder, stand, min(topics.items()))
            record_live(recorder, peer, live, windows)
        if with_storage:
            for count, topic in topics.items():
                scenario = f"first attach, {count:,} delayed"
                for _ in range(plan.runs):
                    per_s = entries_per_s(stand.broker.admin_url, topic)
                    recorder.metric(scenario, "entries a second", "1/s").add(STORAGE, round(per_s))
                    plan.say(f"{STORAGE}, {count:,}: {per_s:,.0f} a second")


def around_a_small_one(
    plan: Plan, recorder: Recorder, stand: Stand, smallest: tuple[int, str]
) -> dict[str, list[Window]]:
    """Windows: during the reading of a small backlog; a hundred seconds without one, and with that one."""
    count, topic = smallest
    idle = quiet(stand, topic, LONG_S)
    small = attach(plan, recorder, stand, topic, "live", count, "first attach beside live traffic")
    rest_s = LONG_S - (small.ended_ns - small.began_ns) / 1e9
    end = quiet(stand, topic, max(0.0, rest_s))
    return {
        "a small backlog is read": [small],
        "100 s without a small backlog": [idle],
        "100 s with a small backlog": [Window(small.began_ns, end.ended_ns)],
    }


def run(plan: Plan, recorder: Recorder) -> None:
    """Each tracker on a stand of its own; the storage on the first of them."""
    recorder.parameters |= {"due_messages": DUE, "live_messages_per_s": LIVE_PER_S}
    trackers = [peer for peer in plan.peers if peer != STORAGE] or [OURS]
    for number, peer in enumerate(trackers):
        measure(plan, recorder, peer, with_storage=number == 0 and STORAGE in plan.peers)


BENCH = Bench(
    name="readahead",
    measures="seconds until a backlog that no index has is held, and live traffic's latency meanwhile",
    takes="26 min",
    takes_quick="4 min",
    peers=(OURS, WITHOUT, IN_MEMORY, BUCKET, STORAGE),
    runs=3,
    runs_quick=1,
    run=run,
)
