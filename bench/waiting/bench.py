"""The time to see and to cancel messages that wait, beside Redis and PostgreSQL in the same run.

Three scenarios. *Looks*: each keeper has all entries, due evenly over a week; the tide of that week in 60
buckets, and pages of 1,000 from random times on, are asked again and again. *Cancels*: messages wait at a
real broker, and ``cancel`` takes back some one at a time and the others in batches, each answered when
Pulsar's record and the journal have it; a publish to that broker is its bound. The peers delete as many by
their ids, each batch as durable as they make it. The cancels follow a reschedule of as many others, in
batches, with its leftovers in every keeper. Unfavourable to Tidegate: the peers get ids in their own form,
and have no broker that decides. *Beside*, Tidegate alone: messages are delivered at a steady rate, and in
every other turn of a few seconds as many others of the subscription are cancelled; the other turns are its
bound.
"""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pulsar
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.made_entries import Source
from bench.harness.stats import Better, quantiles
from bench.harness.trackers import OURS, TRACKERS
from bench.pulsar import receipts
from bench.pulsar.stand import PROCESS_START_MS, SUBSCRIPTION, Stand, now_ms
from bench.waiting.keepers import KEEPERS, POSTGRESQL, REDIS, Keeper, Postgresql, Redis
from tidegate.index import Entries, PositionSet
from tidegate.plugin.wire.client import ask_socket

DAY_MS = 86_400_000
SPAN_MS = 7 * DAY_MS
BATCH = 10_000
PAGE = 1_000
TIDES, PAGES, SINGLES = 20, 100, 200
LOOKS, LOOKS_QUICK = 10_000_000, 1_000_000
CANCELS, CANCELS_QUICK = 100_000, 30_000
ANSWER_S = 120.0
SAY_S = 10.0
CONF = {
    # As advised for many cancels: the broker's default stores 10,000 ranges of acknowledgements.
    "managedLedgerMaxUnackedRangesToPersist": "1000000",
    "managedLedgerPersistIndividualAckAsLongArray": "true",
}
TRACKED_S = 600.0
TIDE_GOAL_MS, PAGE_GOAL_MS, SINGLE_GOAL_MS, CANCELS_GOAL_PER_S = 10.0, 50.0, 10.0, 20_000.0
BESIDE_PER_S, BESIDE_BATCH, BESIDE_WARM_S = 1_000, 100, 25
BESIDE_DELAY_MS = 1_000, 10_000
BESIDE_S, BESIDE_QUICK_S, TURNS = 5, 1, 24
BESIDE_GOAL = 1.1
TOPIC = "cancels"
TOPIC_NAME = f"persistent://public/default/{TOPIC}"


def took_ms(work: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1e3


def batches(count: int, first_ms: int) -> Iterator[Entries]:
    """All entries of a run, in batches."""
    source = Source(SPAN_MS, first_ms=first_ms)
    for start in range(0, count, BATCH):
        yield source.entries(start, min(BATCH, count - start))


class Progress:
    """Tells the step under way, and every ``SAY_S`` how far it is."""

    def __init__(self, plan: Plan, begin: str) -> None:
        self._plan = plan
        self._begin = begin
        self._said_s = time.monotonic()

    def step(self, text: str) -> None:
        """A step begins."""
        self._said_s = time.monotonic()
        self._plan.say(f"{self._begin}: {text}")

    def far(self, text: str) -> None:
        """The step is so far."""
        if time.monotonic() - self._said_s >= SAY_S:
            self.step(text)


class Run:
    """One round's measurements of one keeper."""

    def __init__(self, plan: Plan, recorder: Recorder, peer: str, seed: int) -> None:
        self._plan = plan
        self._recorder = recorder
        self._peer = peer
        self._random = np.random.default_rng(seed)

    def looks(self, count: int) -> None:
        """The tide, and pages."""
        scenario = f"{count:,} messages that wait, due within a week"
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            keeper = KEEPERS[self._peer](Path(folder))
            self._progress(scenario).step("starting")
            keeper.start()
            try:
                self._look(keeper, scenario, count)
            finally:
                keeper.stop()

    def _progress(self, scenario: str) -> Progress:
        return Progress(self._plan, f"{self._peer}, {scenario}")

    def _look(self, keeper: Keeper, scenario: str, count: int) -> None:
        # A day in the future, so that none comes due meanwhile.
        first_ms = now_ms() + DAY_MS
        progress = self._progress(scenario)
        fill(keeper, count, first_ms, progress)
        end_ms = first_ms + SPAN_MS
        tides, wrong = [], 0
        progress.step(f"{TIDES} tides, {PAGES} pages")
        for number in range(TIDES):
            progress.far(f"{number} tides")
            at_ms = now_ms()
            began_s = time.perf_counter()
            counted = keeper.tide(at_ms, end_ms + DAY_MS - at_ms)
            tides.append((time.perf_counter() - began_s) * 1e3)
            wrong = max(wrong, abs(counted - count))
        pages = []
        for start in self._random.integers(first_ms, end_ms - DAY_MS, PAGES).tolist():
            pages.append(took_ms(partial(keeper.page, start, PAGE)))
            progress.far(f"{len(pages)} pages")
        self._add(scenario, "tide in 60 buckets, median", "ms", float(np.median(tides)), TIDE_GOAL_MS)
        self._add(scenario, "tide in 60 buckets, the first after the fill", "ms", tides[0], TIDE_GOAL_MS)
        self._add(scenario, "tide in 60 buckets, longest", "ms", max(tides))
        self._add(scenario, "messages that the tide misses or adds", "messages", wrong, 0)
        self._add(scenario, "page of 1,000, median", "ms", float(np.median(pages)), PAGE_GOAL_MS)
        self._add(scenario, "page of 1,000, p99", "ms", float(np.quantile(pages, 0.99)))

    def cancels(self, count: int) -> None:
        """One at a time, then the others in batches."""
        scenario = f"{count:,} messages cancelled by id"
        progress = self._progress(scenario)
        progress.step("starting")
        if self._peer == OURS:
            with Stand(TRACKERS[OURS], conf=CONF) as stand:
                consumer = stand.consumer(TOPIC)
                entries, cancel, reschedule = _broker_changes(stand, 2 * count, progress)
                self._reschedule(entries.part(count, 2 * count), reschedule, progress)
                self._cancel(scenario, entries.part(0, count), cancel, progress)
                assert consumer.received == 0
                times_ms = published_ms(stand.broker.service_url)
            self._add(scenario, "bound: one publish at a time, median", "ms", float(np.median(times_ms)))
            self._add(scenario, "bound: one publish at a time, p99", "ms", float(np.quantile(times_ms, 0.99)))
            return
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            keeper = KEEPERS[self._peer](Path(folder))
            assert isinstance(keeper, Redis | Postgresql)
            keeper.start()
            try:
                fill(keeper, 2 * count, now_ms() + DAY_MS, progress)
                entries = Source(SPAN_MS).entries(0, 2 * count)
                self._reschedule(entries.part(count, 2 * count), keeper.reschedule, progress)
                self._cancel(scenario, entries.part(0, count), keeper.cancel, progress)
            finally:
                keeper.stop()

    def beside(self, seconds: int) -> None:
        """Deliveries, without cancellations and beside them, in turns."""
        scenario = f"{BESIDE_PER_S:,} a second delivered, {BESIDE_PER_S:,} others a second cancelled"
        progress = self._progress(scenario)
        progress.step("starting")
        far = TURNS // 2 * seconds * BESIDE_PER_S
        with Stand(TRACKERS[OURS], conf=CONF) as stand:
            consumer = stand.consumer(TOPIC)
            entries, cancel, _ = _broker_changes(stand, far, progress)
            sequence = np.arange((BESIDE_WARM_S + TURNS * seconds) * BESIDE_PER_S)
            send_at_ms = now_ms() + PROCESS_START_MS + sequence * 1_000 // BESIDE_PER_S
            delays_ms = self._random.integers(*BESIDE_DELAY_MS, len(sequence))
            rows = np.column_stack([far + sequence, send_at_ms, send_at_ms + delays_ms])
            process = stand.start_sending(TOPIC, rows)
            begin_ms = int(rows[0, 1]) + BESIDE_WARM_S * 1_000
            borders_ms = begin_ms + 1_000 * seconds * np.arange(TURNS + 1)
            batches = [entries.part(at, at + BESIDE_BATCH) for at in range(0, far, BESIDE_BATCH)]
            done = 0
            for number, batch in enumerate(batches):
                turn, within = divmod(number, len(batches) * 2 // TURNS)
                progress.far(f"turn {2 * turn + 1}")
                due_ms = borders_ms[2 * turn + 1] + within * 1_000 * BESIDE_BATCH // BESIDE_PER_S
                time.sleep(max(0.0, (due_ms - now_ms()) / 1e3))
                done += cancel(batch)
            late_ms = now_ms() - borders_ms[TURNS]
            stand.finish_sending(process, ANSWER_S)
            consumer.wait_received(len(rows), ANSWER_S)
            records = consumer.records()
        lateness = receipts.lateness_ms(records)
        turns = np.searchsorted(borders_ms, records["deliver_at_ms"], side="right")
        numbers = np.arange(1, TURNS + 1)
        without, beside = numbers[0::2], numbers[1::2]

        def p99_ms(some: NDArray[np.int64]) -> float:
            return float(np.quantile(lateness[np.isin(turns, some)], 0.99))

        def median_ms(some: NDArray[np.int64]) -> float:
            return float(np.median([p99_ms(one) for one in some]))

        halves = p99_ms(without[0::2]), p99_ms(without[1::2])
        self._add(scenario, "lateness p99 without", "ms", p99_ms(without))
        self._add(scenario, "lateness p99 beside cancellations", "ms", p99_ms(beside))
        self._add(scenario, "the one by the other", "times", p99_ms(beside) / p99_ms(without), BESIDE_GOAL)
        self._add(scenario, "turns without, one half by the other", "times", max(halves) / min(halves))
        self._add(scenario, "median turn's p99 without", "ms", median_ms(without))
        self._add(scenario, "median turn's p99 beside cancellations", "ms", median_ms(beside))
        self._add(scenario, "cancellations behind at the end", "ms", max(0, late_ms))
        self._add(scenario, "early", "messages", int((lateness < 0).sum()), 0)
        self._add(scenario, "not cancelled", "messages", far - done, 0)

    def _reschedule(
        self, entries: Entries, reschedule: Callable[[Entries, int], int], progress: Progress
    ) -> None:
        scenario = f"{len(entries):,} messages rescheduled by id"
        order, to_ms, done = self._random.permutation(len(entries)), now_ms() + 2 * DAY_MS, 0
        progress.step(f"rescheduling {len(entries):,} in batches")
        began_s = time.perf_counter()
        for start in range(0, len(entries), BATCH):
            progress.far(f"{start:,} in batches")
            done += reschedule(entries.take(order[start : start + BATCH]), to_ms)
        per_s = len(entries) / (time.perf_counter() - began_s)
        self._add(scenario, "in batches of 10,000", "a second", per_s, CANCELS_GOAL_PER_S, better="higher")
        self._add(scenario, "not rescheduled", "messages", len(entries) - done, 0)

    def _cancel(
        self, scenario: str, entries: Entries, cancel: Callable[[Entries], int], progress: Progress
    ) -> None:
        order = self._random.permutation(len(entries))
        singles, many = order[:SINGLES], order[SINGLES:]
        done, times_ms = 0, []
        progress.step("cancelling one at a time")
        for at in singles:
            progress.far(f"{done} of {len(singles)}")
            one = entries.take(np.array([at]))
            began_s = time.perf_counter()
            done += cancel(one)
            times_ms.append((time.perf_counter() - began_s) * 1e3)
        progress.step(f"cancelling {len(many):,} in batches")
        began_s = time.perf_counter()
        for start in range(0, len(many), BATCH):
            progress.far(f"{start:,} in batches")
            done += cancel(entries.take(many[start : start + BATCH]))
        per_s = len(many) / (time.perf_counter() - began_s)
        self._add(scenario, "in batches of 10,000", "a second", per_s, CANCELS_GOAL_PER_S, better="higher")
        self._add(scenario, "one at a time, median", "ms", float(np.median(times_ms)))
        self._add(scenario, "one at a time, p99", "ms", float(np.quantile(times_ms, 0.99)), SINGLE_GOAL_MS)
        self._add(scenario, "not cancelled", "messages", len(entries) - done, 0)
        self._recorder.curve(scenario, self._peer, "ms", quantiles(times_ms))

    def _add(
        self,
        scenario: str,
        title: str,
        unit: str,
        value: float,
        target: float | None = None,
        *,
        better: Better = "lower",
    ) -> None:
        metric = self._recorder.metric(scenario, title, unit, better=better, target=target)
        metric.add(self._peer, round(value, 3))
        self._plan.say(f"{self._peer}, {scenario}: {title} {value:,.2f} {unit}")


def published_ms(service_url: str) -> list[float]:
    """Milliseconds of each publish, one at a time: one write of the broker, as a cancel needs, too."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    try:
        producer = client.create_producer(f"{TOPIC}-bound", batching_enabled=False)
        return [took_ms(partial(producer.send, b"")) for _ in range(2 * SINGLES)][SINGLES:]
    finally:
        client.close()


def fill(keeper: Keeper, count: int, first_ms: int, progress: Progress) -> None:
    """Add all entries of a run."""
    progress.step(f"adding {count:,}")
    added = 0
    for batch in batches(count, first_ms):
        keeper.add(batch)
        added += len(batch)
        progress.far(f"{added:,} added")
    keeper.filled()


def _broker_changes(
    stand: Stand, count: int, progress: Progress
) -> tuple[Entries, Callable[[Entries], int], Callable[[Entries, int], int]]:
    """Messages that wait at a real broker, a call that cancels some, and one that moves some."""
    progress.step(f"sending {count:,}")
    far_ms = now_ms() + DAY_MS
    sequence = np.arange(count)
    stand.send(TOPIC, np.column_stack([sequence, np.zeros(count, np.int64), far_ms + sequence]))
    progress.step("all are sent; waiting until all are tracked")
    stand.wait_delayed(TOPIC, count, TRACKED_S)
    progress.step("listing their ids")
    assert stand.daemon is not None
    path = stand.daemon.socket_path
    name = {"topic": TOPIC_NAME, "subscription": SUBSCRIPTION}

    def ask(request: dict[str, object]) -> dict[str, Any]:
        return ask_socket(path, request | name, ANSWER_S)

    def change(what: str, entries: Entries, **more: object) -> int:
        positions = base64.b64encode(PositionSet.of_entries(entries).serialize()).decode("ascii")
        return int(ask({"what": what, "positions": positions, "dry_run": False, **more})["done"])

    def cancel(entries: Entries) -> int:
        return change("cancel", entries)

    def reschedule(entries: Entries, to_ms: int) -> int:
        return change("reschedule", entries, at_ms=to_ms)

    found: list[tuple[int, int, int]] = []
    after = None
    while True:
        page = ask({"what": "waiting", "limit": BATCH, "after": after})
        for one in page["entries"]:
            ledger_id, entry_id = one["message_id"].split(":")
            found.append((one["deliver_at_ms"], int(ledger_id), int(entry_id)))
        after = page["next"]
        if after is None:
            break
    return Entries.of(found), cancel, reschedule


def run(plan: Plan, recorder: Recorder) -> None:
    """The scenarios of each keeper, in each round."""
    sizes = plan.entries or (LOOKS_QUICK if plan.quick else LOOKS,)
    cancels = CANCELS_QUICK if plan.quick else CANCELS
    recorder.parameters |= {"cancels": cancels, "tides": TIDES, "pages": PAGES, "one at a time": SINGLES}
    for number, peers in plan.rounds():
        for peer in peers:
            one = Run(plan, recorder, peer, seed=number)
            if peer == OURS:
                one.beside(BESIDE_QUICK_S if plan.quick else BESIDE_S)
            one.cancels(cancels)
            for size in sizes:
                one.looks(size)


BENCH = Bench(
    name="waiting",
    measures="the time to see and to cancel messages that wait, beside Redis and PostgreSQL",
    takes="25 min",
    takes_quick="4 min",
    peers=(OURS, REDIS, POSTGRESQL),
    runs=3,
    runs_quick=1,
    run=run,
    takes_entries=True,
)
