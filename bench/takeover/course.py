"""The course of one peer with one number of messages: a fill, the faults, ten moves, and due messages."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.harness.driver import Plan, Recorder
from bench.harness.errors import BenchError
from bench.harness.waiting import until
from bench.pulsar.stand import SUBSCRIPTION, now_ms
from bench.takeover import backlog
from bench.takeover.costs import Counters, LagWatch, publish_ms, writes_a_minute
from bench.takeover.faults import FAULTS, Fault
from bench.takeover.figures import GOAL_S, LAG_GOAL_S, Figures
from bench.takeover.flood import Flood, confirmed_by, soon
from bench.takeover.judge import Outage, Outcome, judge, missing
from bench.takeover.place import TOPIC, Place
from bench.takeover.reads import given_since, read_again
from bench.takeover.stage import Stages, moved
from bench.takeover.traffic import PER_S, Traffic
from tidegate.plugin.drill.fault import FaultError

MOVES = 10
MOVES_S = 180.0
"""No further move is begun after that: at a million one takes Pulsar's trackers half a minute and more."""
REWINDS_AT = (3, 7)
TICK_MS = 2_000
"""Pulsar's trackers may hand out by a tick early."""
COST_S, COST_QUICK_S = 15.0, 5.0
FAULTS_S, KILL_S = 210.0, 60.0
"""About: a round of all faults and moves when nothing is read again, and one fault."""
FLOOD_MAX = 100_000
FLOOD_S, FLOOD_SOON_S = 2.0, 25.0
READS_A_SECOND = 2_000
"""What the slowest tracker reads, at least, on a busy machine: how long to wait for it."""


@dataclass(frozen=True)
class Round:
    """The faults for a tracker, and how often it reads everything again.

    moves: the topic moves ten times after the faults. fault_rereads: at how many faults. move_rereads: at
    each move.
    """

    faults: tuple[Fault, ...] = FAULTS
    moves: bool = True
    fault_rereads: int = 0
    move_rereads: bool = False

    @property
    def took_s(self) -> float:
        """Its approximate length without repeated reads."""
        return FAULTS_S if self.moves else KILL_S


class Course:
    """One peer and one number of messages."""

    def __init__(
        self, plan: Plan, recorder: Recorder, peer: str, place: Place, far: int, round_: Round
    ) -> None:
        self.place = place
        self.stand = place.stand
        self._plan = plan
        self._figures = Figures(recorder, peer)
        self._peer = peer
        self._far = far
        self._round = round_
        self.patience_s = 60.0 + far / READS_A_SECOND
        self.traffic = Traffic(TOPIC, place.folder / "client.log", first=far)
        self._stages = Stages(place, self.traffic, self._held, self.patience_s)
        self._sample: Mapping[int, int] = {}
        self._sample_ms = 0
        self._stored = far
        self._moved_ns = 0
        self._taken_back_ns: list[int] = []

    def run(self) -> None:
        """Fill, measure the cost, do each fault as often as there are rounds, wait for the sample."""
        scenario = f"{self._far:,} delayed messages"
        self.traffic.start(self.place.service_url)
        try:
            self._step("filled", lambda: self._fill(scenario))
            # Before the first move: until brokers have reported their load, Pulsar may give the topic to any.
            self._step("measured without a fault", lambda: self._cost(scenario))
            for _ in range(self._plan.runs):
                for fault in self._round.faults:
                    if not fault.needs_daemon or self.place.ours:
                        self._step(fault.title, functools.partial(self._measure, scenario, fault))
                if self._round.moves:
                    self._step("moves", lambda: self._moves(scenario))
            self._step("what was due after the moves", lambda: self._due_after_moves(scenario))
            if self._far <= FLOOD_MAX:
                self._step("killed amid a fill", lambda: self._kill_amid_fill(scenario))
        finally:
            self.traffic.close()

    def _step(self, title: str, do: Callable[[], None]) -> None:
        begun_s = time.monotonic()
        do()
        took_s = time.monotonic() - begun_s
        self._plan.say(f"{self._peer}, {self._far:,}: {title}: the step took {took_s:.0f} s")

    # ---- cost

    def _fill(self, scenario: str) -> None:
        begun_ms = now_ms()
        self._sample_ms = begun_ms + int(self._planned_s() * 1_000)
        made = backlog.make(self._far, begun_ms, self._sample_ms, seed=1)
        before = Counters.of(self.place, self.traffic)
        # Also without a log, so that peers with and without one get the same requests.
        with LagWatch(self.place) if self.place.ours else contextlib.nullcontext() as watch:
            per_s = self.place.send(made.schedule, self.patience_s)
            sent = Counters.of(self.place, self.traffic)
            self._sample = made.due
            self.traffic.due.update(made.due)
            self.place.wait_delayed(self._held, self.patience_s)
            self.place.wait_logged(self.patience_s)
        after = Counters.of(self.place, self.traffic)
        broker_us = (after.broker_s - before.broker_s) / self._far * 1e6
        daemon_us = (after.daemon_s - before.daemon_s) / self._far * 1e6
        written = (after.bookie_bytes - before.bookie_bytes) / self._far
        self._figures.add(scenario, "published", "messages/s", per_s, better_high=True)
        self._figures.add(scenario, "broker and daemon", "CPU µs a message", broker_us + daemon_us)
        self._figures.add(scenario, "of which: broker", "CPU µs a message", broker_us)
        if self.place.ours:
            self._figures.add(scenario, "of which: daemon", "CPU µs a message", daemon_us)
        self._figures.add(scenario, "stored by the bookie", "bytes an entry", written)
        if watch is not None and self.place.log:
            appended = self.place.counted(self.place.owner(), "tidegate_index_log_bytes_total")
            self._figures.add(scenario, "appended to the index log", "bytes an entry", appended / self._far)
            self._figures.add(
                scenario, "index log behind during the fill, longest", "s", watch.longest_s, LAG_GOAL_S
            )
        self._figures.add(
            scenario, "ZooKeeper writes during the fill", "a minute", writes_a_minute(before, sent)
        )
        self._figures.add_publishing(
            scenario, "publish during the fill", publish_ms(self.traffic, before, sent)
        )
        self._plan.say(f"{self._peer}: {self._far:,} messages sent, {per_s:,.0f} a second, and tracked")

    def _planned_s(self) -> float:
        """The approximate seconds from before the fill until the last move is done."""
        return backlog.planned_s(
            self._far,
            self._plan.runs,
            self._round.took_s,
            self._round.fault_rereads,
            MOVES_S if self._round.move_rereads else None,
        )

    def _cost(self, scenario: str) -> None:
        before = Counters.of(self.place, self.traffic)
        time.sleep(COST_QUICK_S if self._plan.quick else COST_S)  # the counts of so long are the figure
        after = Counters.of(self.place, self.traffic)
        self._figures.add(scenario, "ZooKeeper writes", "a minute", writes_a_minute(before, after))
        self._figures.add_publishing(scenario, "publish", publish_ms(self.traffic, before, after))

    # ---- faults

    def _measure(self, scenario: str, fault: Fault) -> None:
        title = f"{scenario}: {fault.title}"
        stages = [self._stages.make(fault) for _ in range(fault.times)]
        if fault.moves:
            self._moved_ns = stages[-1].connected_ns
        outages = [Outage(one.begun_ns, one.connected_ns) for one in stages] if fault.moves else []
        outcome = self._judge(stages[0].begun_ns, outages)
        self._figures.add_fault(title, fault, stages, outcome)
        seen = ", ".join(
            f"consumer after {(one.connected_ns - one.begun_ns) / 1e9:.2f} s, first due message "
            f"{one.first_s:.3f} s later, {read_again(one.readings):,} entries read again {one.readings}"
            for one in stages
        )
        self._plan.say(f"{self._peer}, {title}: {seen}, {outcome}")

    def _held(self) -> int:
        """The least number of messages in the tracker: all except the sample's that are due about now."""
        soon_ms = now_ms() + TICK_MS
        return self._stored - sum(at_ms <= soon_ms for at_ms in self._sample.values())

    def _judge(
        self, begun_ns: int, outages: Sequence[Outage], taken_back_at_ns: int | None = None
    ) -> Outcome:
        """Check that every message due by now has come."""
        by_ms = now_ms()
        self._wait_for(self.traffic.due.copy(), by_ms)
        return judge(
            self.traffic.due.copy(),
            list(self.traffic.arrivals),
            since_ns=begun_ns,
            now_ms=by_ms,
            outages=outages,
            taken_back_at_ns=taken_back_at_ns,
        )

    def _wait_for(self, due: Mapping[int, int], by_ms: int) -> None:
        """Return when all messages due by then have come, or too much time has passed."""
        try:
            until(
                "what is due", lambda: not missing(due, list(self.traffic.arrivals), by_ms), self.patience_s
            )
        except BenchError as error:
            lost = sorted(missing(due, list(self.traffic.arrivals), by_ms))
            self._plan.say(f"{self._peer}: {error}: {len(lost)} are missing, as {lost[:20]}")

    def _moves(self, scenario: str) -> None:
        """The topic moves there and back, and twice the cursor is reset meanwhile."""
        title = f"{scenario}: moves in a row"
        before = Counters.of(self.place, self.traffic)
        begun_ns, end_s = time.time_ns(), time.monotonic() + MOVES_S
        taken_back_ns: int | None = None
        outcomes: list[Outcome] = []
        outages: list[Outage] = []
        first_s: list[float] = []
        for number in range(MOVES):
            if time.monotonic() > end_s:
                break
            moved_ns = moved(self._move)
            connected_ns, waited_s = self._stages.first_due(
                self.traffic.wait_connected(moved_ns, self.patience_s)
            )
            first_s.append(waited_s)
            outages.append(Outage(moved_ns, connected_ns))
            if number in REWINDS_AT:
                outcomes.append(self._judge(begun_ns, outages, taken_back_ns))
                taken_back_ns = self._take_back()
                self._taken_back_ns.append(taken_back_ns)
                begun_ns = time.time_ns()
        self._moved_ns = outages[-1].end_ns
        outcomes.append(self._judge(begun_ns, outages, taken_back_ns))
        after = Counters.of(self.place, self.traffic)
        writes = (after.metadata_writes - before.metadata_writes) / len(first_s)
        self._figures.add_moves(title, first_s, outcomes)
        self._figures.add(title, "ZooKeeper writes", "a move", writes)
        self._figures.add(title, "ZooKeeper writes meanwhile", "a minute", writes_a_minute(before, after))
        self._plan.say(
            f"{self._peer}, {title}: {len(first_s)} moves, first due message "
            f"{min(first_s):.2f}-{max(first_s):.2f} s, {writes:.0f} ZooKeeper writes each, {outcomes}"
        )

    def _move(self) -> int:
        """Make the other broker own the topic; returns the beginning, in ns."""
        begun_ns = time.time_ns()
        self.stand.move(TOPIC)
        return begun_ns

    def _take_back(self) -> int:
        """Set the cursor back to the beginning; returns its end.

        On return everything has come again, and the owner has the acknowledgements, which take longer than
        the client gathers them in a burst of many thousand.
        """
        again = {one.number for one in self.traffic.arrivals}
        begun_ns = time.time_ns()

        def set_back() -> bool:
            with contextlib.suppress(FaultError):  # refused while another request writes the cursor
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

    # ---- the backlog itself

    def _due_after_moves(self, scenario: str) -> None:
        """The sample of the backlog falls due: none is lost, early, or delivered twice."""
        title = f"{scenario}: a sample of these, due after the moves"
        left_s = (self._sample_ms - now_ms()) / 1_000
        self._plan.say(f"{self._peer}: the sample of {len(self._sample):,} is due in {left_s:.0f} s")
        self._judge_sample(title, self._sample, self._sample_ms, self._moved_ns)
        self.place.wait_delayed(self._held, self.patience_s)

    def _judge_sample(self, title: str, due: Mapping[int, int], due_ms: int, moved_ns: int) -> None:
        all_due_ms = due_ms + backlog.SPREAD_MS
        time.sleep(max(0.0, (all_due_ms - now_ms()) / 1_000))  # until then some are not due
        self._wait_for(due, all_due_ms)
        time.sleep(1.0)  # a repeat comes soon
        found = backlog.judge_sample(
            due, list(self.traffic.arrivals), moved_ns=moved_ns, taken_back_at_ns=self._taken_back_ns
        )
        self._figures.add_sample(title, len(due), found)
        lost = f", as {list(found.lost[:20])}" if found.lost else ""
        self._plan.say(
            f"{self._peer}, {title}: {len(due):,} due, {found.before} before the last move was done, "
            f"{len(found.lost)} lost{lost}, {found.early} early, {found.twice} twice"
        )

    def _kill_amid_fill(self, scenario: str) -> None:
        """Kill -9 of broker and daemon while messages are published at full speed."""
        title = f"{scenario}: broker and daemon killed amid a fill"
        given_before = self._stages.given()
        soon_ms = now_ms() + int(FLOOD_SOON_S * 1_000)
        owner, machine = self.place.owner(), self.stand.part("machine")
        logs = self.place.ours and self.place.log
        with (
            LagWatch(self.place) if logs else contextlib.nullcontext() as watch,
            Flood(self.place.live_url(), TOPIC, self.place.folder, soon_ms) as flood,
        ):
            flood.wait_confirmed(1)
            time.sleep(FLOOD_S)  # so that the kill comes amid the fill
            asked_ns = time.time_ns()
            given = given_since(given_before, owner.name, self.place.given(owner)) if self.place.ours else 0
            begun_ns = time.time_ns()
            machine.kill()
        notes = flood.notes()
        confirmed = confirmed_by(notes, time.time_ns())
        # Messages that the former owner had not reached yet are read for the first time, not again.
        fresh = max(0, confirmed_by(notes, asked_ns) - given) if self.place.ours else 0
        last_second = confirmed - confirmed_by(notes, begun_ns - 1_000_000_000)
        due = soon(confirmed, soon_ms)
        self.traffic.due.update(due)
        self._stored += confirmed
        self._sample = {**self._sample, **due}
        self.traffic.replace(self.place.service_url)
        connected_ns, first_s = self._stages.first_due(self.traffic.wait_connected(begun_ns, self.patience_s))
        readings = self._stages.readings(connected_ns, 0, given_before)
        read = max(0, read_again(readings) - fresh)
        outcome = self._judge(begun_ns, [Outage(begun_ns, connected_ns)])
        self._plan.say(
            f"{self._peer}, {title}: {confirmed:,} confirmed, {last_second:,} in the last second; first due "
            f"message {first_s:.3f} s after the consumer, {read:,} entries read again, {fresh:,} for the "
            f"first time, {readings}, {outcome}"
        )
        machine.start()
        if watch is not None:
            self._figures.add(title, "index log behind before it, longest", "s", watch.longest_s, LAG_GOAL_S)
        self._figures.add(title, "published in the last second", "messages", last_second, headline=False)
        self._figures.add(title, "not read by the former owner yet", "entries", fresh, headline=False)
        self._figures.add(title, "first due message after that", "s", first_s, GOAL_S)
        self._figures.add(title, "entries read again", "entries", read)
        self._figures.add(title, "entries read again beyond those", "entries", max(0, read - last_second), 0)
        self._figures.add_repeats(title, outcome, target=None)
        self._judge_sample(title, due, soon_ms, connected_ns)
        self.place.wait_delayed(self._held, self.patience_s)
