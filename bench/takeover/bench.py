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
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.harness.driver import Bench, Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.trackers import BUCKET, IN_MEMORY, OURS
from bench.harness.waiting import settled, until
from bench.pulsar.stand import SUBSCRIPTION, now_ms
from bench.takeover.judge import Outage, Outcome, first_after, judge, missing, read_again, served_since
from bench.takeover.place import TOPIC, Place
from bench.takeover.traffic import PER_S, Traffic
from tidegate.plugin.drill.fault import FaultError
from tidegate.plugin.drill.stands import trackers as stands

MESSAGES, MESSAGES_QUICK = 100_000, 20_000
FAR_MS = (24 * 3_600_000, 48 * 3_600_000)
NO_LOG = "tidegate, no log"
TRACKER_OF = {OURS: stands.OURS, NO_LOG: stands.NO_INDEX_LOG, IN_MEMORY: "in-memory", BUCKET: "bucket"}
MOVES = 10
REWINDS_AT = (3, 7)
WARM_S = 6.0
COST_S, COST_QUICK_S = 20.0, 5.0
PAUSED_S = 12.0
READS_A_SECOND = 2_000
"""What the slowest tracker reads, at least, on a busy machine: how long to wait for it."""
GOAL_S = 0.5
UNDER_WAY = "repeated, acknowledged in the client's last 0.1 s"


def far_schedule(count: int, seed: int) -> NDArray[np.int64]:
    """Rows of messages due tomorrow, in random order, sent at once."""
    due = now_ms() + np.random.default_rng(seed).integers(*FAR_MS, count)
    return np.column_stack([np.arange(count), np.zeros(count, np.int64), due])


@dataclass(frozen=True)
class Fault:
    """What is done to the topic's owner. ``do`` returns what is to be done when it has been measured."""

    title: str
    do: Callable[[Course], Callable[[], None]]
    moves: bool = True
    repeats_young: float | None = None
    """How many messages may come again that were acknowledged just before; None: as many as there are."""
    needs_daemon: bool = False


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
        self.traffic.start(self.service_url)
        try:
            self._fill(scenario)
            self._cost(scenario)
            for _ in range(self._plan.runs):
                for fault in FAULTS:
                    if not fault.needs_daemon or self.place.ours:
                        self._measure(scenario, fault)
                self._moves(scenario)
        finally:
            self.traffic.close()

    def service_url(self) -> str:
        """All brokers, once one that answers has the topic."""
        self.stand.client_url(TOPIC)
        return self.stand.cluster.service_url

    def live_url(self) -> str:
        """Those that answer, once one of them has the topic: one that stands still would be waited for."""
        return self.stand.client_url(TOPIC)

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
        undo = fault.do(self)
        connected_ns = time.time_ns()
        if fault.moves:
            connected_ns = self.traffic.wait_connected(begun_ns, self.patience_s)
        connected_ns, first_s = self._first_due(connected_ns)
        read = self._read_again(connected_ns, read_before)
        if self.place.ours and self.place.log:
            owner = self.place.owner()
            now_s = self.place.restored_s(owner)
            # Less than before: it is another daemon.
            took_s = now_s - restored_s[owner.name] if now_s >= restored_s[owner.name] else now_s
            self._add(title, "of which: the index restored from its log", "s", took_s, headline=False)
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
        """Entries read again since then; ``read_before`` by the same broker."""
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
        title = f"{scenario}: ten moves in a row"
        begun_ns = time.time_ns()
        taken_back_ns: int | None = None
        outcomes: list[Outcome] = []
        outages: list[Outage] = []
        first_s: list[float] = []
        for number in range(MOVES):
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
        self._add(title, "first due message at the new owner, median", "s", float(np.median(first_s)), GOAL_S)
        self._add(title, "first due message at the new owner, longest", "s", max(first_s), GOAL_S)
        self._add(title, "early", "messages", sum(one.early for one in outcomes), 0)
        self._add(title, "lost", "messages", sum(one.lost for one in outcomes), 0)
        repeated = sum(one.repeated_old + one.repeated_young for one in outcomes)
        under_way = sum(one.repeated_under_way for one in outcomes)
        self._add(title, "repeated although acknowledged and not taken back", "messages", repeated, 0)
        self._add(title, UNDER_WAY, "messages", under_way)
        self._plan.say(
            f"{self._peer}, {title}: first due message {min(first_s):.2f}-{max(first_s):.2f} s, "
            f"{repeated} repeated, {under_way} whose acknowledgement may not have been sent"
        )

    def _take_back(self) -> int:
        """Set the cursor back to the beginning; when that was done. Everything has come again on return."""
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

        until("what was taken back to come again", came, self.patience_s)
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


def _nothing() -> None:
    """Nothing is left to do."""


def unload(course: Course) -> Callable[[], None]:
    """The topic's bundle moves to the other broker."""
    course.stand.move(TOPIC)
    return _nothing


def restart(course: Course) -> Callable[[], None]:
    """The owner's broker and daemon are stopped in an orderly way, and started again."""
    machine = course.stand.part("machine")
    machine.stop()
    return machine.start


def kill(course: Course) -> Callable[[], None]:
    """Kill -9 of the owner's broker and daemon."""
    machine = course.stand.part("machine")
    machine.kill()
    course.traffic.replace(course.service_url)
    return machine.start


def stand_still(course: Course) -> Callable[[], None]:
    """The owner's broker and daemon stand still until another one has the topic, and go on."""
    machine = course.stand.part("machine")
    machine.pause()
    course.traffic.replace(course.live_url)
    resumed_s = time.monotonic() + PAUSED_S

    def go_on() -> None:
        time.sleep(max(0.0, resumed_s - time.monotonic()))
        machine.resume()
        time.sleep(PAUSED_S)  # whatever the former owner still does is to be seen in what arrives
        # It may think for minutes that the topic is its own: a fresh one for the next fault.
        machine.kill()
        machine.start()

    return go_on


def lose_disk(course: Course) -> Callable[[], None]:
    """The daemon dies and its data with it; an empty one is started. The broker stays."""
    daemon, folder = course.stand.part("daemon"), course.stand.data_dir()
    daemon.kill()
    shutil.rmtree(folder)
    daemon.start()
    return _nothing


FAULTS = (
    Fault("unload", unload, repeats_young=0),
    Fault("broker and daemon killed", kill),
    Fault("rolling restart", restart, repeats_young=0),
    Fault("broker and daemon paused past the session's end", stand_still),
    Fault("the daemon's disk lost, from the start of another", lose_disk, moves=False, needs_daemon=True),
)


def run(plan: Plan, recorder: Recorder) -> None:
    """Each peer on a cluster of its own."""
    far = plan.entries or (MESSAGES_QUICK if plan.quick else MESSAGES)
    recorder.parameters |= {"messages": far, "due_per_s": PER_S}
    for peer in plan.peers:
        heap_mib = 512 if far <= 1_000_000 else 1_536
        with Place(TRACKER_OF[peer], heap_mib=heap_mib) as place:
            Course(plan, recorder, peer, place, far).run()


BENCH = Bench(
    name="takeover",
    measures="a topic changes its owner in a cluster: first due message, entries read again, repeats, cost",
    takes="15 min",
    takes_quick="8 min",
    peers=(OURS, NO_LOG, IN_MEMORY, BUCKET),
    runs=1,
    runs_quick=1,
    run=run,
    takes_entries=True,
)
