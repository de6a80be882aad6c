"""The course of one round: connect, store tomorrow's messages, send, do the fault, undo it, wait, judge.

Invariants:

- the fault is undone and the clients are closed when ``Course.run`` returns or raises;
- the verdict reads only the ledger on disk;
- a fault not done, or not seen done, fails the round with its own words, as does every other error that a
  person could repair. Only an interrupt ends the run;
- a burst that this machine stored too slowly is no evidence about the tracker: it starts again with more time
  (``TooFastError``), and counts as it is if that does not help.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.plugin.drill.clients import Clients, RefusedError
from tidegate.plugin.drill.drill import Drill
from tidegate.plugin.drill.fault import Fault, FaultError, Scene, Stand
from tidegate.plugin.drill.ledger import Forgets, Ledger, Round, read_ledger
from tidegate.plugin.drill.plan import SENDS_PER_S, Plan, Shape, plan
from tidegate.plugin.drill.tally import Tally
from tidegate.plugin.drill.verdict import Verdict, judge, stored_late
from tidegate.plugin.drill.watch import Watch
from tidegate.plugin.errors import UserError
from tidegate.plugin.shared.stop import InterruptedRunError, Stop

SUBSCRIPTION = "tidegate-drill"
_CONNECT_TIMEOUT_S = 180.0
# After so long without a receipt, missing messages are lost.
_PATIENCE_S = 60.0
_REPEATS_S = 0.5
# The client sends acknowledgements after a tenth of that, and within it the broker writes a cursor once.
_ACKNOWLEDGED_S = 1.0
# Share of the machine's measured rate, so that the next attempt succeeds.
_SLOWER = 0.6
_FASTER = 1.25
_WARMING = 1.25
_SENDS_PER_S_MIN = 100
_FAR_TIMEOUT_S = 60.0
_FILL_TIMEOUT_S = 600.0
_POLL_S = 0.1
_MS_US = 1_000


@dataclass
class Progress:
    """The run's progress, for a view. Only the run writes it, one field at a time.

    ``began_us``: begin of its set-up; ``start_us``: of the round. ``marks_s``: times of planned faults;
    ``strikes``: the faults done, with their times. ``down``: the present fault, until messages can come
    again.
    """

    began_us: int = 0
    drill: str = ""
    does: str = ""
    tracker: str = ""
    round: str = ""
    phase: str = "starting"
    start_us: int | None = None
    end_ms: int = 0
    tally: Tally | None = None
    watch: Watch | None = None
    online: bool = False
    down: str = ""
    marks_s: Sequence[float] = ()
    events: list[tuple[float, str]] = field(default_factory=list)
    strikes: list[tuple[float, str]] = field(default_factory=list)
    finished: list[tuple[str, str, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Job:
    """One round to run. ``seed`` makes the plan; ``run`` marks its messages.

    ``sends_per_s``: their storing rate; with ``again`` a slower burst may start again.
    """

    drill: Drill
    number: int
    seed: int
    run: int
    directory: Path
    key_shared: bool = False
    sends_per_s: int = SENDS_PER_S
    again: bool = False


class TooFastError(UserError):
    """The burst was not stored before it was due; ``sends_per_s`` is a rate that can be."""

    def __init__(self, sends_per_s: int) -> None:
        super().__init__("the burst could not be stored before it was due")
        self.sends_per_s = sends_per_s


class Course:
    """One round on a stand. ``stuck``, after ``run``: a thread is still inside the client's library."""

    def __init__(
        self, job: Job, stand: Stand, stop: Stop, progress: Progress, now_us: Callable[[], int]
    ) -> None:
        self._job = job
        self._stand = stand
        self._stop = stop
        self._progress = progress
        self._now_us = now_us
        self._subscription = f"{SUBSCRIPTION}-{job.run:08x}"
        self._clients: Clients | None = None
        self._start_us = now_us()
        self._back_us = 0
        self.stuck = False

    def run(self) -> Verdict:
        """Run the round. Raises ``InterruptedRunError`` when the end was requested, or ``TooFastError``."""
        job, stand, progress = self._job, self._stand, self._progress
        messages = plan(job.drill.load, job.seed, job.sends_per_s)
        progress.phase, progress.strikes, progress.tally = "connecting", [], None
        progress.start_us, progress.down = None, ""
        topic = stand.topic(job.drill.name, job.number)
        clients = self._clients = Clients(
            lambda: stand.client_url(topic),
            topic,
            self._subscription,
            plan=messages,
            run=job.run,
            log_path=job.directory.parent / "client.log",
            now_us=self._now_us,
            token=stand.token,
            key_shared=job.key_shared,
        )
        try:
            self._connect(clients)
            of = Round(
                drill=job.drill.name,
                tracker=stand.tracker,
                stand=stand.name,
                number=job.number,
                seed=job.seed,
                run=job.run,
                start_us=self._whole_ms_us(),
                repeats_allowed=tuple(sorted(job.drill.repeats_allowed)),
                burst=job.drill.load.shape is Shape.BURST,
                early_ms=job.drill.early_ms,
            )
            with Ledger(job.directory, of, messages, self._now_us) as ledger:
                self._within(ledger, clients, messages, topic)
                clients.close()
        finally:
            clients.close()
            stand.release(topic, self._subscription)
            self.stuck = clients.stuck
            progress.online = False
        record = read_ledger(job.directory)
        if job.again and record.finished and stored_late(record):
            raise TooFastError(int(job.sends_per_s * _SLOWER))
        return judge(record)

    def _within(self, ledger: Ledger, clients: Clients, messages: Plan, topic: str) -> None:
        progress = self._progress
        tally = progress.tally = Tally(messages, self._start_us)
        clients.begin(ledger, tally, self._now_us())
        try:
            self._fill(clients, tally, messages)
            self._start(ledger, clients, tally, messages)
            progress.phase = "sending and delivering"
            self._store_burst(clients, tally, messages)
            self._strike_all(ledger, clients, messages, topic)
            self._finish(clients, tally, messages)
            self._measure(ledger, topic, messages)
            ledger.event("end")
        except (InterruptedRunError, TooFastError):
            raise
        except UserError as error:
            ledger.event("failure", text=str(error))
            ledger.event("end")
            self._event(f"failed: {error}")

    def _fill(self, clients: Clients, tally: Tally, messages: Plan) -> None:
        """Store the messages due tomorrow: the round begins with a backlog."""
        if not messages.before:
            return
        self._progress.phase = f"sending {messages.before:,} messages that are due tomorrow"

        def stored() -> bool:
            self._check(clients)
            return tally.sent >= messages.before

        began_us = self._now_us()
        advice = "stop what else keeps this machine busy, or ask for fewer"
        self._stop.until("sending messages due tomorrow", stored, _FILL_TIMEOUT_S, advice)
        took_s = (self._now_us() - began_us) / 1e6
        self._event(f"{messages.before:,} messages that are due tomorrow were sent in {took_s:.1f} s")

    def _start(self, ledger: Ledger, clients: Clients, tally: Tally, messages: Plan) -> None:
        progress, drill = self._progress, self._job.drill
        start_us = self._start_us = self._whole_ms_us()
        ledger.event("start", at_us=start_us)
        tally.begin(start_us)
        clients.start(start_us)
        first_s = messages.lead_ms / 1000 + drill.at_s
        progress.marks_s = [first_s + place * drill.apart_s for place in range(len(drill.faults))]
        progress.start_us, progress.end_ms = start_us, messages.end_ms

    def _store_burst(self, clients: Clients, tally: Tally, messages: Plan) -> None:
        """Check half-way, and at the end, that all of it will be stored before it is due."""
        load = self._job.drill.load
        if load.shape is not Shape.BURST or not self._job.again:
            return
        end_ms = messages.lead_ms + min(self._job.drill.at_s, 0) * 1000
        for share in (0.5, 1.0):
            self._pause_until_ms(share * end_ms, clients)
            elapsed_ms = (self._now_us() - self._start_us) / 1000
            pace = slower_pace(tally.sent, len(messages), elapsed_ms, messages.lead_ms, last=share == 1.0)
            if pace is not None:
                raise TooFastError(pace)

    def _strike_all(self, ledger: Ledger, clients: Clients, messages: Plan, topic: str) -> None:
        drill = self._job.drill
        scene = Scene(
            stand=self._stand,
            topic=topic,
            subscription=self._subscription,
            drivers=clients,
            pause=self._stop.pause,
            event=functools.partial(self._tell, ledger),
            work_dir=self._job.directory,
        )
        self._pause_until_ms(messages.lead_ms + drill.at_s * 1000, clients)
        if drill.drained:
            self._drain(clients)
        for time_number in range(drill.times):
            for place, fault in enumerate(drill.faults):
                if place and drill.apart_s:
                    self._pause_until_ms(self._progress.marks_s[place] * 1000, clients)
                    self._drain(clients)
                self._strike(ledger, scene, fault, clients)
            if time_number + 1 < drill.times:
                self._stop.pause(drill.between_s)

    def _drain(self, clients: Clients) -> None:
        """Wait until everything due has come, and the broker has its acknowledgements."""
        tally = self._progress.tally
        now_us = self._now_us()
        while tally is not None and tally.delivered_due < tally.due(now_us):
            self._check(clients)
            if given_up(self._now_us(), tally.last_us, now_us):
                # The verdict reports missing messages.
                break
            self._stop.pause(_POLL_S)
        self._stop.pause(_ACKNOWLEDGED_S)

    def _tell(self, ledger: Ledger, kind: str, **fields: Any) -> int:
        """Write a fault's event into the ledger; after a reset of the cursor, expect everything again."""
        at_us = ledger.event(kind, **fields)
        if kind == "rewinding" and self._progress.tally is not None:
            self._progress.tally.rewinding()
        return at_us

    def _strike(self, ledger: Ledger, scene: Scene, fault: Fault, clients: Clients) -> None:
        progress, drill = self._progress, self._job.drill
        if not progress.strikes or fault.forgets in {Forgets.ORDERLY, Forgets.UNSTORED}:
            # The broker's count dies with it.
            self._count_reads(ledger, scene.topic)
        begin_us = ledger.event("strike", what=fault.what, forgets=fault.forgets, rewinds=fault.rewinds)
        progress.strikes.append(((begin_us - self._start_us) / 1e6, fault.what))
        progress.phase = progress.down = fault.what
        self._event(fault.what)
        scene.parts.clear()
        try:
            evidence = fault.do(scene)
            ledger.event("done", evidence=evidence)
            self._event(f"seen: {evidence}")
            if drill.recovers:
                self._back(ledger, scene, clients, begin_us)
            self._stop.pause(drill.hold_s)
        except UserError:
            # The round fails with the first error.
            with contextlib.suppress(UserError):
                fault.undo(scene)
            raise
        ledger.event("undo")
        progress.phase = "everything is started again"
        fault.undo(scene)
        if drill.recovers:
            self._event("undone")
        else:
            self._back(ledger, scene, clients, begin_us)
        progress.phase = "sending and delivering"

    def _back(self, ledger: Ledger, scene: Scene, clients: Clients, begin_us: int) -> None:
        self._usable(scene, clients)
        back_us = self._back_us = ledger.event("back")
        self._progress.down = ""
        self._event(f"usable again after {(back_us - begin_us) / 1e6:.1f} s")

    def _usable(self, scene: Scene, clients: Clients) -> None:
        scene.stand.wait_usable(scene.topic)
        self._stop.until(
            "the clients' way back",
            lambda: clients.settled,
            _CONNECT_TIMEOUT_S,
            f"see the client's log beside {self._job.directory}",
        )

    def _connect(self, clients: Clients) -> None:
        deadline_s = time.monotonic() + _CONNECT_TIMEOUT_S
        while True:
            try:
                clients.connect()
            except RefusedError:
                raise
            except UserError:
                if time.monotonic() > deadline_s:
                    raise
            else:
                self._progress.online = True
                return
            self._stop.pause(_POLL_S)

    def _finish(self, clients: Clients, tally: Tally, messages: Plan) -> None:
        self._pause_until_ms(messages.end_ms, clients)
        self._progress.phase = "waiting for the last messages"
        while clients.unconfirmed or tally.sent < len(messages) or tally.missing:
            self._check(clients)
            end_us = self._start_us + messages.end_ms * _MS_US
            if given_up(self._now_us(), tally.last_us, end_us, self._back_us):
                break
            self._stop.pause(_POLL_S)
        self._stop.pause(_REPEATS_S)

    def _measure(self, ledger: Ledger, topic: str, messages: Plan) -> None:
        """Record the broker's own counts: messages still held, and entries read."""
        far = len(messages) - int(messages.expected.sum())
        deadline_s = time.monotonic() + _FAR_TIMEOUT_S
        held = self._stand.delayed(topic, self._subscription)
        while held is not None and held < far and time.monotonic() < deadline_s:
            self._stop.pause(_POLL_S)
            held = self._stand.delayed(topic, self._subscription)
        if held is not None:
            ledger.event("far", held=held)
        self._count_reads(ledger, topic)

    def _count_reads(self, ledger: Ledger, topic: str) -> None:
        counts = self._stand.entries_read(topic)
        if counts is not None:
            ledger.event("reads", counts=counts)

    # ---- small things

    def _whole_ms_us(self) -> int:
        """Now, in whole milliseconds as deliver_at is: no fraction may come between it and the plan."""
        return self._now_us() // _MS_US * _MS_US

    def _pause_until_ms(self, moment_ms: float, clients: Clients) -> None:
        while (left_s := moment_ms / 1000 - (self._now_us() - self._start_us) / 1e6) > 0:
            self._check(clients)
            self._stop.pause(min(left_s, 0.25))

    def _check(self, clients: Clients) -> None:
        self._progress.online = clients.online
        if clients.failure is not None:
            raise FaultError(f"the drill's own clients failed: {clients.failure}")

    def _event(self, text: str) -> None:
        self._progress.events.append(((self._now_us() - self._start_us) / 1e6, text))


def given_up(now_us: int, *happened_us: int) -> bool:
    """True if missing messages are lost, as in the verdict later.

    ``happened_us``: the last receipt, the due time of the last message, and the end of the last fault's
    outage: a broker may take longer than ``_PATIENCE_S`` to start.
    """
    return now_us - max(happened_us) > _PATIENCE_S * 1e6


def slower_pace(sent: int, count: int, elapsed_ms: float, lead_ms: int, *, last: bool) -> int | None:
    """A rate per second that this machine can store, with room; None if ``count`` will be stored in time.

    Before the ``last`` look it may be a quarter behind: a warm broker gets faster.
    """
    needed_ms = elapsed_ms * count / max(sent, 1)
    if sent >= count or needed_ms <= lead_ms * (1.0 if last else _WARMING):
        return None
    return max(int(sent * 1000 / elapsed_ms * _SLOWER), _SENDS_PER_S_MIN)


def faster_pace(sends_per_s: int, most_per_s: int) -> int:
    """The rate for the burst after one stored in time: only the start may have been slow."""
    return min(int(sends_per_s * _FASTER), most_per_s)
