"""The demo's course: start, send, kill, restart, wait for the last message, audit.

Invariants:

- every process started here has ended when ``run`` returns or raises, even after an error, an interrupt or a
  hung client; the guard ensures it even if this process is killed -9;
- the second kill waits until the consumers have caught up after the first, so that each outage is measured by
  itself;
- the demo's view and its verdict come from the same record.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from tidegate.plugin.demo.audit import Outage, audit
from tidegate.plugin.demo.clients import ClientError, Clients
from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.run import Options, Outcome, Progress
from tidegate.plugin.demo.trackers import TRACKERS
from tidegate.plugin.demo.watch import Watch
from tidegate.plugin.demo.workload import FIRST_KILL_AT, SECOND_KILL_AT, Kind, Workload, plan
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.process import LocalProcess
from tidegate.plugin.local.trackers import FACTORY_KEY, tidegate_conf
from tidegate.plugin.local.workspace import workspace
from tidegate.plugin.stop import RunError, Stop

TOPIC = "persistent://public/default/tidegate-demo"
SUBSCRIPTION = "demo"
_WORK = "work"
# So small that a run of a minute passes through several slices and 100,000 messages do not fit into memory.
_DAEMON_SETTINGS = {"slice_width_ms": "10000", "staging_bytes": "524288"}
_DAEMON_STOP_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 60.0
_CONNECT_PAUSE_S = 0.2
_FILL_TIMEOUT_S = 600.0
# For late events at the end of the run: a restart may have taken long on a busy machine.
_GRACE_S = 30.0
_REPEATS_S = 0.5
# Messages due this very moment: with at most this many missing, the consumers have caught up.
_UNDER_WAY = 50
_FAR_TIMEOUT_S = 10.0
_CATCH_UP_TIMEOUT_S = 15.0
_JOIN_TIMEOUT_S = 2.0

T = TypeVar("T")


class Demo:
    """One run; other threads may read ``progress`` meanwhile.

    ``stuck``, after ``run``: a thread is still inside the client's library, which aborts the process if
    Python ends in the ordinary way.
    """

    def __init__(self, options: Options, stop: Stop) -> None:
        self.progress = Progress(options)
        self._options = options
        self.stop = stop
        self._work_dir = options.out_dir / _WORK
        self._outages: list[Outage] = []
        self._processes: list[LocalProcess] = []
        self._helper: threading.Thread | None = None
        self.stuck = False

    def run(self) -> Outcome:
        """Run the demo. Raises ``RunError``, or ``InterruptedRunError`` when ``stop`` was requested."""
        with workspace(self._options.out_dir, (_WORK,), busy="another demo runs") as socket_dir:
            with Guard() as guard:
                outcome = self._run(socket_dir / "tidegate.sock", guard)
            # After an error the logs named in it stay, until the next run.
            if not self._options.keep:
                shutil.rmtree(self._work_dir, ignore_errors=True)
            return outcome

    def _run(self, socket_path: Path, guard: Guard) -> Outcome:
        options = self._options
        began_s = time.monotonic()
        daemon = self._daemon(socket_path, guard) if options.tracker == "tidegate" else None
        broker = self._broker(socket_path, guard)
        self._processes = [broker] if daemon is None else [broker, daemon]
        workload = plan(options.messages, options.seconds, options.far)
        clients = Clients(broker.service_url, TOPIC, SUBSCRIPTION, workload, self._work_dir / "client.log")
        watch = self.progress.watch = Watch(None if daemon is None else daemon.url)
        try:
            self._start(daemon, broker)
            self._connect(clients)
            watch.start()
            recorder = self.progress.recorder = Recorder(workload)
            self._fill(clients, recorder)
            setup_s = time.monotonic() - began_s
            # Whole milliseconds, as deliver_at is: otherwise the plan and the messages differ by a fraction.
            start_us = self.progress.start_us = now_us() // 1000 * 1000
            recorder.begin(start_us)
            clients.begin(start_us)
            self.progress.phase = "sending and delivering"
            self._pause_until(options.seconds * FIRST_KILL_AT)
            self._kill_broker(broker, clients)
            self._pause_until(options.seconds * SECOND_KILL_AT)
            if daemon is not None:
                self._catch_up(recorder)
                self._kill_daemon(daemon, watch)
            self._finish(clients, recorder, workload)
            far_sent, far_held = self._far(broker, recorder, workload)
            return Outcome(
                options=options,
                workload=workload,
                start_us=start_us,
                audit=audit(
                    workload, start_us, recorder.confirmations(), recorder.deliveries(), self._outages
                ),
                outages=self._outages,
                far_sent=far_sent,
                far_held=far_held,
                history=watch.history,
                recorder=recorder,
                setup_s=setup_s,
                total_s=time.monotonic() - began_s,
            )
        finally:
            self.progress.phase = "stopping every process"
            # The processes first: without an answer the client may take a while to end.
            broker.kill()
            if daemon is not None:
                daemon.stop(_DAEMON_STOP_TIMEOUT_S)
            clients.close()
            if self._helper is not None:
                self._helper.join(_JOIN_TIMEOUT_S)
            self.stuck = clients.stuck or (self._helper is not None and self._helper.is_alive())
            watch.close()

    def _daemon(self, socket_path: Path, guard: Guard) -> Daemon:
        return Daemon(
            self._work_dir / "daemon",
            socket_path=socket_path,
            settings=_DAEMON_SETTINGS,
            arguments=["--log-format", "human"],
            guard=guard,
            pause=self.stop.pause,
        )

    def _broker(self, socket_path: Path, guard: Guard) -> Broker:
        options = self._options
        factory = TRACKERS[options.tracker].factory
        conf = tidegate_conf(socket_path) if factory is None else {FACTORY_KEY: factory}
        conf |= {
            "managedLedgerMaxUnackedRangesToPersist": "1000000",
            "managedLedgerPersistIndividualAckAsLongArray": "true",
        }
        return Broker(
            options.pulsar_home,
            self._work_dir / "broker",
            conf=conf,
            extra_classpath=[] if options.jar is None else [options.jar],
            # The short-lived JVM never gets warm: compiling less halves its start.
            jvm_options=["-XX:TieredStopAtLevel=1"],
            guard=guard,
            pause=self.stop.pause,
        )

    # The course

    def _start(self, daemon: Daemon | None, broker: Broker) -> None:
        self.progress.phase = "starting the daemon and a Pulsar broker"
        broker.spawn()
        if daemon is not None:
            daemon.spawn()
            daemon.wait_ready()
            self.progress.daemon_up = True
        broker.wait_ready()
        self.progress.broker_up = True

    def _connect(self, clients: Clients) -> tuple[int, int]:
        self.progress.phase = "connecting a producer and two consumers"

        def attempt() -> tuple[int, int]:
            self._check_alive()
            return self._interruptible(clients.connect, _CONNECT_TIMEOUT_S)

        # A broker that is healthy but has just started may be too busy to load a topic before the client's
        # timeout.
        times = Retrying(
            retry=retry_if_exception_type(ClientError),
            stop=stop_after_delay(_CONNECT_TIMEOUT_S),
            wait=wait_fixed(_CONNECT_PAUSE_S),
            sleep=self.stop.pause,
            reraise=True,
        )(attempt)
        self.progress.clients_up = True
        self.progress.phase = "sending and delivering"
        return times

    def _fill(self, clients: Clients, recorder: Recorder) -> None:
        self.progress.phase = f"sending {self._options.far:,} messages that are due tomorrow"
        began_s = time.monotonic()
        clients.fill(recorder)

        def filled() -> bool:
            self._check_alive()
            return recorder.live().sent >= self._options.far

        self.stop.until("sending what is due tomorrow", filled, _FILL_TIMEOUT_S, self._advice("--far"))
        if self._options.far:
            took_s = time.monotonic() - began_s
            self._event(f"{self._options.far:,} messages that are due tomorrow were sent in {took_s:.1f} s")

    def _kill_broker(self, broker: Broker, clients: Clients) -> None:
        killed_us = self._kill("broker", broker.kill)
        self.progress.broker_up = self.progress.clients_up = False
        clients.drop()
        self.progress.phase = "the broker is down, and starts again"
        broker.spawn()
        broker.wait_ready()
        ready_us = now_us()
        self.progress.broker_up = True
        disconnected_us, usable_us = self._connect(clients)
        self._event(f"broker healthy, consumers subscribed again after {(usable_us - killed_us) / 1e6:.1f} s")
        self._outages.append(Outage("broker", killed_us, ready_us, disconnected_us, usable_us))

    def _kill_daemon(self, daemon: Daemon, watch: Watch) -> None:
        killed_us = self._kill("daemon", daemon.kill)
        self.progress.daemon_up = False
        self.progress.phase = "the daemon is down, and starts again"
        daemon.spawn()
        daemon.wait_ready()
        ready_us = now_us()
        self.progress.daemon_up = True
        seen_us = [killed_us]

        def linked() -> bool:
            before_us = now_us()
            state = watch.ask()
            if state is not None and state.streams:
                return True
            seen_us.append(before_us)
            return False

        what = "the broker's way back to the daemon"
        self.stop.until(what, linked, _CONNECT_TIMEOUT_S, self._advice("--messages"))
        usable_us = now_us()
        self.progress.phase = "sending and delivering"
        self._event(f"daemon recovered, the broker found it after {(usable_us - killed_us) / 1e6:.1f} s")
        self._outages.append(Outage("daemon", killed_us, ready_us, seen_us[-1], usable_us))

    def _catch_up(self, recorder: Recorder) -> None:
        """Wait, within limits, until everything that came due during the outage has been delivered."""

        def caught_up() -> bool:
            self._check_alive()
            counts = recorder.live()
            return counts.delivered - counts.plain >= counts.due - _UNDER_WAY

        with contextlib.suppress(_TimeIsUpError):
            self._until(caught_up, _CATCH_UP_TIMEOUT_S)

    def _finish(self, clients: Clients, recorder: Recorder, workload: Workload) -> None:
        self._pause_until(self._options.seconds)
        self.progress.phase = "waiting for the last messages"
        expected = (workload.kind != Kind.FAR).nonzero()[0]

        def complete() -> bool:
            self._check_alive()
            return not clients.unconfirmed and not len(recorder.outstanding(expected))

        # A message that has not come in time is lost, which the audit will say.
        with contextlib.suppress(_TimeIsUpError):
            self._until(complete, _GRACE_S)
        self.stop.pause(_REPEATS_S)

    def _far(self, broker: Broker, recorder: Recorder, workload: Workload) -> tuple[int, int]:
        far = (workload.kind == Kind.FAR).nonzero()[0]
        far_sent = sum(recorder.is_confirmed(int(number)) for number in far)
        held = [0]

        def all_held() -> bool:
            held[0] = _delayed_messages(broker.admin_url)
            return held[0] >= far_sent

        with contextlib.suppress(_TimeIsUpError):
            self._until(all_held, _FAR_TIMEOUT_S)
        return far_sent, held[0]

    # Small things

    def _advice(self, flag: str) -> str:
        """The remedy when something takes too long."""
        return f"stop what else keeps this machine busy, or ask for less ({flag}); the logs: {self._work_dir}"

    def _kill(self, what: str, kill: Callable[[], None]) -> int:
        self.progress.kills.append((self.progress.elapsed_s, what))
        self._event(f"kill -9 of the {what}")
        killed_us = now_us()
        kill()
        return killed_us

    def _event(self, text: str) -> None:
        self.progress.events.append((self.progress.elapsed_s, text))

    def _pause_until(self, second: float) -> None:
        while (left_s := second - self.progress.elapsed_s) > 0:
            self._check_alive()
            self.stop.pause(min(left_s, 0.5))

    def _check_alive(self) -> None:
        for process in self._processes:
            if not process.running:
                raise RunError(f"the {process.name} ended by itself; the logs are in {self._work_dir}")

    def _until(self, done: Callable[[], bool], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline_s:
                raise _TimeIsUpError
            self.stop.pause(0.1)

    def _interruptible(self, work: Callable[[], T], timeout_s: float) -> T:
        """Call ``work`` on a thread of its own, so that an interrupt need not wait for it."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._helper = threading.Thread(target=call, daemon=True)
        self._helper.start()
        self.stop.until("the Pulsar client's connection", future.done, timeout_s, self._advice("--messages"))
        return future.result()


class _TimeIsUpError(Exception):
    """Waiting longer is useless."""


def _delayed_messages(admin_url: str) -> int:
    path = f"{admin_url}/admin/v2/{TOPIC.replace('://', '/')}/stats"
    try:
        stats = httpx.get(path, timeout=5.0, trust_env=False).json()
        return int(stats["subscriptions"][SUBSCRIPTION]["msgDelayed"])
    except (httpx.HTTPError, ValueError, KeyError):
        return 0
