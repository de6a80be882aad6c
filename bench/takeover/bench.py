"""Seconds until the first due message when a topic changes its owner, on a cluster of two brokers.

A subscription has many delayed messages that are due tomorrow; beside them twenty a second are published,
delayed by some seconds, delivered and acknowledged all the time. Then the owner is unloaded, restarted,
killed with its daemon, paused for longer than its session lasts, or its daemon loses its disk; at the end the
topic moves ten times, and the cursor is reset twice meanwhile. The clock runs from the moment that the new
owner has the topic and its consumer, by its own word. ``entries read again`` is the new owner's own count of
entries that it read from BookKeeper since it opened the topic, less one for each that was delivered, and one
for each that was published meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS
from bench.harness.waiting import settled, until
from bench.pulsar.stand import SUBSCRIPTION, now_ms
from bench.takeover.faults import FAULTS, Fault
from bench.takeover.judge import Outage, Outcome, first_after, judge, missing, read_again, served_since
from bench.takeover.place import TOPIC, Place
from bench.takeover.traffic import PER_S, Traffic
from tidegate.plugin.drill.fault import FaultError
from tidegate.plugin.drill.stands import trackers as stands
from tidegate.plugin.errors import UserError

MESSAGES, MESSAGES_QUICK = (100_000, 1_000_000), (20_000,)
OURS_ALONE_ABOVE = 1_000_000
"""A tracker that reads everything again at each fault would take hours for more."""
FAR_MS = (24 * 3_600_000, 48 * 3_600_000)
NO_LOG = "tidegate, no log"
TRACKER_OF = {OURS: stands.OURS, NO_LOG: stands.NO_INDEX_LOG, IN_MEMORY: "in-memory", BUCKET: "bucket"}
MOVES = 10
MOVES_S = 240.0
"""No further move is begun after that: at a million one takes Pulsar's trackers half a minute and more."""
REWINDS_AT = (3, 7)
WARM_S = 6.0
COST_S, COST_QUICK_S = 20.0, 5.0
READS_A_SECOND = 2_000
"""What the slowest tracker reads, at least, on a busy machine: how long to wait for it."""
GOAL_S = 0.5
UNDER_WAY = "repeated, acknowledged in the client's last 0.1 s"


def far_schedule(count: int, seed: int) -> NDArray[np.int64]:
    """Rows of messages due tomorrow, in random order, sent at once."""
    due = now_ms() + np.random.default_rng(seed).integers(*FAR_MS, count)
    return np.column_stack([np.arange(count), np.zeros(count, np.int64), due])


class Course:
    """One peer and one number of messages."""

    def __init__(self, plan: Plan, recorder: Recorder, peer: str, place: Place, far: int) -> None:
        self.place = place
        self.stand = place.stand
        self._plan = plan
        self._recorder = recorder
        self._peer = peer
        self._far = far
        self.patience_s = 60.0 + far / READS_A_SECOND
        self.traffic = Traffic(TOPIC, place.folder / "client.log", first=far)

    def run(self) -> None:
        """Fill, measure what it costs, and do each fault as often as there are rounds."""
        scenario = f"{self._far:,} delayed messages"
        self.traffic.start(self.place.service_url)
        try:
            self._step("filled", lambda: self._fill(scenario))
            self._step("measured without a fault", lambda: self._cost(scenario))
            for _ in range(self._plan.runs):
                for fault in FAULTS:
                    if not fault.needs_daemon or self.place.ours:
                        self._step(fault.title, functools.partial(self._measure, scenario, fault))
                self._step("moves", lambda: self._moves(scenario))
        finally:
            self.traffic.close()

    def _step(self, title: str, do: Callable[[], None]) -> None:
        begun_s = time.monotonic()
        do()
        took_s = time.monotonic() - begun_s
        self._plan.say(f"{self._peer}, {self._far:,}: {title}: the step took {took_s:.0f} s")

    # ---- what it costs

    def _fill(self, scenario: str) -> None:
        before_s = self.place.processor_s()
        per_s = self.place.send(far_schedule(self._far, seed=1), self.patience_s)
        self.place.wait_delayed(self._far, self.patience_s)
        self.place.wait_logged(self.patience_s)
        used_s = self.place.processor_s() - before_s
        self._add(scenario, "published", "messages/s", per_s, better_high=True)
        self._add(scenario, "broker and daemon", "CPU µs a message", used_s / self._far * 1e6)
        if self.place.ours and self.place.log:
            written = self.place.counted(self.place.owner(), "tidegate_index_log_bytes_total")
            self._add(scenario, "appended to the index log", "bytes an entry", written / self._far)
        self._plan.say(f"{self._peer}: {self._far:,} messages sent, {per_s:,.0f} a second, and tracked")

    def _cost(self, scenario: str) -> None:
        cluster = self.stand.cluster
        writes, at_s, confirmed = cluster.metadata_writes(), time.monotonic(), len(self.traffic.confirm_ns)
        time.sleep(COST_QUICK_S if self._plan.quick else COST_S)
        per_minute = (cluster.metadata_writes() - writes) / (time.monotonic() - at_s) * 60
        took_ms = np.array(self.traffic.confirm_ns[confirmed:]) / 1e6
        self._add(scenario, "ZooKeeper writes", "a minute", per_minute)
        self._add(scenario, "publish, median", "ms", float(np.median(took_ms)))
        self._add(scenario, "publish, 99th percentile", "ms", float(np.quantile(took_ms, 0.99)))

    # ---- faults

    def _measure(self, scenario: str, fault: Fault) -> None:
        title = f"{scenario}: {fault.title}"
        time.sleep(WARM_S)  # so that there is something to repeat, and the former owner is warm
        begun_ns, read_before = time.time_ns(), 0 if fault.moves else self.place.entries_read()
        restored_s = {node.name: self.place.restored_s(node) for node in self.stand.cluster.nodes}
        undo = fault.do(self.place, self.traffic)
        connected_ns = time.time_ns()
        if fault.moves:
            connected_ns = self.traffic.wait_connected(begun_ns, self.patience_s)
        connected_ns, first_s = self._first_due(connected_ns)
        read = self._read_again(connected_ns if fault.moves else begun_ns, read_before)
        if self.place.ours and self.place.log:
            owner = self.place.owner()
            now_s = self.place.restored_s(owner)
            # Less than before: it is another daemon.
            took_s = now_s - restored_s[owner.name] if now_s >= restored_s[owner.name] else now_s
            self._add(title, "of which: the index restored from its log", "s", took_s, headline=False)
        if self.place.ours and fault.moves:
            peak_mib = self.place.daemon_peak_mib()
            self._add(title, "the owner's daemon, most memory so far", "MiB", peak_mib, headline=False)
        undo()
        outcome = self._judge(begun_ns, [Outage(begun_ns, connected_ns)] if fault.moves else [])
        self._record(title, fault, (connected_ns - begun_ns) / 1e9, first_s, read, outcome)
        self.stand.wait_usable(TOPIC)

    def _first_due(self, connected_ns: int) -> tuple[int, float]:
        """When the owner had the consumer, in ns, and how many seconds later the first due message came."""
        first_ns = until(
            "the first due message",
            lambda: first_after(list(self.traffic.arrivals), connected_ns),
            self.patience_s,
            interval_s=0.005,
        )
        since_ns = served_since(connected_ns, self.place.consumer_since_ns(), first_ns)
        return since_ns, (first_ns - since_ns) / 1e9

    def _read_again(self, since_ns: int, read_before: int) -> int:
        """Entries read again since then; ``read_before``: by then, by the same broker."""
        self.place.wait_delayed(self._far, self.patience_s)
        settled("the reads to end", lambda: self.place.entries_read() // (PER_S * 10), self.patience_s)
        read = self.place.entries_read() - read_before
        delivered = sum(one.arrived_at_ns >= since_ns for one in list(self.traffic.arrivals))
        stored = sum(at_ns >= since_ns for at_ns in list(self.traffic.confirmed_at_ns))
        return read_again(read, stored, delivered)

    def _judge(
        self, begun_ns: int, outages: Sequence[Outage], taken_back_at_ns: int | None = None
    ) -> Outcome:
        """What was due by now has come, or is lost."""
        by_ms = now_ms()
        try:
            until(
                "what is due",
                lambda: not missing(dict(self.traffic.due), list(self.traffic.arrivals), by_ms),
                self.patience_s,
            )
        except BenchError as error:
            self._plan.say(f"{self._peer}: {error}")
        return judge(
            dict(self.traffic.due),
            list(self.traffic.arrivals),
            since_ns=begun_ns,
            now_ms=by_ms,
            outages=outages,
            taken_back_at_ns=taken_back_at_ns,
        )

    def _moves(self, scenario: str) -> None:
        """The topic moves there and back, and twice the cursor is set back meanwhile."""
        title = f"{scenario}: moves in a row"
        begun_ns, end_s = time.time_ns(), time.monotonic() + MOVES_S
        taken_back_ns: int | None = None
        outcomes: list[Outcome] = []
        outages: list[Outage] = []
        first_s: list[float] = []
        for number in range(MOVES):
            if time.monotonic() > end_s:
                break
            moved_ns = time.time_ns()
            self.stand.move(TOPIC)
            connected_ns, waited_s = self._first_due(self.traffic.wait_connected(moved_ns, self.patience_s))
            first_s.append(waited_s)
            outages.append(Outage(moved_ns, connected_ns))
            if number in REWINDS_AT:
                outcomes.append(self._judge(begun_ns, outages, taken_back_ns))
                taken_back_ns = self._take_back()
                begun_ns = time.time_ns()
        outcomes.append(self._judge(begun_ns, outages, taken_back_ns))
        self._add(title, "moves done", "moves", len(first_s), headline=False, better_high=True)
        self._add(title, "first due message at the new owner, median", "s", float(np.median(first_s)), GOAL_S)
        self._add(title, "first due message at the new owner, longest", "s", max(first_s), GOAL_S)
        self._add(title, "early", "messages", sum(one.early for one in outcomes), 0)
        self._add(title, "lost", "messages", sum(one.lost for one in outcomes), 0)
        repeated = sum(one.repeated_old + one.repeated_young for one in outcomes)
        under_way = sum(one.repeated_under_way for one in outcomes)
        self._add(title, "repeated although acknowledged and not taken back", "messages", repeated, 0)
        oldest_ms = max(one.oldest_ms for one in outcomes)
        self._add(title, "the oldest of these, before its move", "ms", oldest_ms, headline=False)
        self._add(title, UNDER_WAY, "messages", under_way)
        self._plan.say(
            f"{self._peer}, {title}: {len(first_s)} moves, first due message "
            f"{min(first_s):.2f}-{max(first_s):.2f} s, {repeated} repeated, the oldest acknowledged "
            f"{oldest_ms} ms before, "
            f"{under_way} whose acknowledgement may not have been sent"
        )

    def _take_back(self) -> int:
        """Set the cursor back to the beginning; when that was done.

        On return everything has come again, and the owner has the acknowledgements: those of many thousand
        in a burst are on their way for longer than the client gathers them.
        """
        again = {one.number for one in self.traffic.arrivals}
        begun_ns = time.time_ns()

        def set_back() -> bool:
            with contextlib.suppress(FaultError):  # refused while something else writes the cursor
                self.stand.rewind(TOPIC, SUBSCRIPTION)
                return True
            return False

        until("the cursor to be set back", set_back, self.patience_s, interval_s=0.1)
        done_ns = time.time_ns()

        def came() -> bool:
            return again <= {
                one.number for one in list(self.traffic.arrivals) if one.arrived_at_ns >= begun_ns
            }

        def acknowledged() -> bool:
            left = self.place.unacknowledged()
            return left is not None and left <= PER_S

        until("what was taken back to come again", came, self.patience_s)
        until("what came again to be acknowledged", acknowledged, self.patience_s, interval_s=0.05)
        return done_ns

    # ---- results

    def _record(
        self, title: str, fault: Fault, connected_s: float, first_s: float, read: int, outcome: Outcome
    ) -> None:
        self._add(title, "consumer connected again", "s", connected_s, headline=False)
        self._add(title, "first due message after that", "s", first_s, GOAL_S)
        self._add(title, "entries read again", "entries", read, PER_S)
        self._add(title, "early", "messages", outcome.early, 0)
        self._add(title, "lost", "messages", outcome.lost, 0)
        self._add(title, "repeated, acknowledged 0.2 s before", "messages", outcome.repeated_old, 0)
        self._add(
            title, "repeated, acknowledged later", "messages", outcome.repeated_young, fault.repeats_young
        )
        self._add(title, UNDER_WAY, "messages", outcome.repeated_under_way)
        self._add(title, "repeated, not acknowledged", "messages", outcome.repeated_in_flight, headline=False)
        self._plan.say(
            f"{self._peer}, {title}: consumer after {connected_s:.2f} s, first due message {first_s:.3f} s "
            f"later, {read:,} entries read again, {outcome}"
        )

    def _add(
        self,
        scenario: str,
        title: str,
        unit: str,
        value: float,
        target: float | None = None,
        *,
        headline: bool = True,
        better_high: bool = False,
    ) -> None:
        metric = self._recorder.metric(
            scenario,
            title,
            unit,
            target=target,
            headline=headline,
            better="higher" if better_high else "lower",
        )
        metric.add(self._peer, round(value, 3))


def run(plan: Plan, recorder: Recorder) -> None:
    """Each number of messages, and each peer on a cluster of its own."""
    sizes = plan.entries or (MESSAGES_QUICK if plan.quick else MESSAGES)
    recorder.parameters |= {"messages": ", ".join(f"{far:,}" for far in sizes), "due_per_s": PER_S}
    for far in sizes:
        for peer in plan.peers:
            if far > OURS_ALONE_ABOVE and peer != OURS and len(plan.peers) > 1:
                recorder.note(f"{far:,} messages: {OURS} alone (`--only {shlex.quote(peer)}` has {peer}).")
                continue
            try:
                with Place(TRACKER_OF[peer], heap_mib=512 if far <= 1_000_000 else 1_536) as place:
                    Course(plan, recorder, peer, place, far).run()
            except (BenchError, UserError) as error:
                # The others have taken most of an hour, perhaps; what this one has measured stays, too.
                recorder.note(f"{peer}, {far:,} messages, was not finished: {error}")
                plan.say(recorder.notes[-1])
    if not recorder.metrics:
        raise BenchError(f"nothing could be measured: {'; '.join(recorder.notes)}")


BENCH = Bench(
    name="takeover",
    measures="a topic changes its owner in a cluster: first due message, entries read again, repeats, cost",
    takes="50 min",
    takes_quick="8 min",
    peers=(OURS, NO_LOG, IN_MEMORY, BUCKET),
    runs=1,
    runs_quick=1,
    run=run,
    takes_entries=True,
)
