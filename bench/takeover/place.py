"""The cluster of one peer: two brokers with its tracker, and questions to them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
from numpy.typing import NDArray

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.harness.parts import pulsar_home, shim_jar
from bench.harness.waiting import at_least, until
from bench.pulsar.stand import SUBSCRIPTION
from bench.takeover.reads import Given
from tidegate.plugin.drill.stands.admin import StandAdmin
from tidegate.plugin.drill.stands.cluster import NAMESPACE, ClusterStand
from tidegate.plugin.drill.stands.standalone import counted_reads
from tidegate.plugin.drill.stands.trackers import OURS, is_ours
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.cluster import Node
from tidegate.plugin.local.guard import Guard
from tidegate.plugin.local.pulsar_process import Bookie

TOPIC = f"persistent://{NAMESPACE}/takeover"
_CLOCK_TICKS = 100
_COUNTING = {
    "enableStatistics": "true",
    "statsProviderClass": "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
    # Its own HTTP server has them.
    "prometheusStatsHttpEnable": "false",
}
_WRITTEN = re.compile(r"^bookie_WRITE_BYTES(?:_total)?(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class _CountingBookie(Bookie):
    """``plain``, but counting its writes."""

    def __init__(self, plain: Bookie) -> None:
        vars(self).update(vars(plain))
        self._conf = {**self._conf, **_COUNTING}


class Place:
    """Use it as a context manager. ``log``: true if our index also has an index log."""

    def __init__(self, tracker: str, *, heap_mib: int) -> None:
        self.ours = is_ours(tracker)
        self.log = tracker == OURS
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
        self._guard = Guard()
        self.stand = ClusterStand(
            tracker,
            pulsar_home(),
            shim_jar() if self.ours else None,
            self.folder,
            Path(tempfile.mkdtemp(prefix="tidegate-", dir=self.folder)),
            guard=self._guard,
            pause=time.sleep,
            heap_mib=heap_mib,
            # As installed: the drills have tiny slices, so that everything happens soon.
            daemon_settings={},
        )
        self.stand.cluster.bookie = _CountingBookie(self.stand.cluster.bookie)

    def __enter__(self) -> Self:
        self.stand.start()
        self.stand.keep_messages()
        self.stand.move_to_first(TOPIC)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stand.end()
        if kind is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def service_url(self) -> str:
        """All brokers, once one that answers has the topic."""
        self.stand.client_url(TOPIC)
        return self.stand.cluster.service_url

    def live_url(self) -> str:
        """The brokers that answer, once one of them has the topic: clients would wait for a paused one."""
        return self.stand.client_url(TOPIC)

    def send(self, schedule: NDArray[np.int64], timeout_s: float) -> float:
        """Send a schedule (``bench.pulsar.producer``); returns messages a second."""
        path = self.folder / "schedule.npy"
        np.save(path, schedule)
        command = [sys.executable, "-m", "bench.pulsar.producer", self.stand.client_url(TOPIC), TOPIC]
        with (self.folder / "clients.log").open("ab") as log:
            done = subprocess.run(
                [*command, str(path)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        words = done.stdout.split()
        if done.returncode != 0 or len(words) != 4:
            raise BenchError(f"the producer failed; see {self.folder / 'clients.log'}")
        count, began_at_ns, confirmed_at_ns = map(int, words[1:])
        return count / max(1, confirmed_at_ns - began_at_ns) * 1e9

    def delayed(self) -> int:
        """The number of messages in the tracker; -1 while it is unknown."""
        try:
            found = self.stand.delayed(TOPIC, SUBSCRIPTION)
        except UserError:
            return -1
        return -1 if found is None else found

    def wait_delayed(self, wanted: Callable[[], int], timeout_s: float) -> None:
        """Return once the tracker has at least as many messages as are wanted by then."""
        at_least("the tracker to hold the backlog", self.delayed, wanted, timeout_s)

    def owner(self) -> Node:
        """The topic's owner. Raises BenchError if it is unknown."""
        try:
            found = self.stand.owner(TOPIC)
        except UserError:
            found = None
        if found is None:
            raise BenchError("nobody has the topic")
        return found

    def consumer_since_ns(self) -> int | None:
        """The time since which the topic's owner says it has its consumer; None if it does not say."""
        found = self._subscription()
        consumers = [] if found is None else found["consumers"]
        if len(consumers) != 1:
            return None
        return int(datetime.fromisoformat(consumers[0]["connectedSince"]).timestamp() * 1e9)

    def unacknowledged(self) -> int | None:
        """The number of delivered messages without an acknowledgement at the owner; None if unknown."""
        found = self._subscription()
        return None if found is None else int(found["unackedMessages"])

    def _subscription(self) -> dict[str, Any] | None:
        """The owner's stats of the subscription."""
        url = self.owner().broker.admin_url
        return StandAdmin(lambda: url).subscription(TOPIC, SUBSCRIPTION)

    def entries_read(self) -> int:
        """Entries of the topic that its owner has read from the bookie since it opened the topic."""
        owner = self.owner()
        if owner.counters_port is None:
            raise BenchError("the broker was not asked to count what it reads")
        return sum(counted_reads(owner.name, owner.counters_port, owner.broker.admin_url, TOPIC).values())

    def counted(self, node: Node, name: str) -> float:
        """A counter of a daemon, which must answer; 0 without it."""
        if not self.ours:
            return 0.0
        text = _metrics(node.daemon.url, f"the daemon of {node.name}")
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return 0.0 if found is None else float(found[1])

    def given(self, node: Node) -> Given:
        """The entries given to the daemon since its start; it must answer."""
        return Given(node.daemon.pid, int(self.counted(node, "tidegate_entries_added_total")))

    def bookie_written(self) -> float:
        """Bytes of entries that the bookie has stored since its start, in all ledgers."""
        found = _WRITTEN.findall(_metrics(self.stand.cluster.bookie_url, "the bookie"))
        if not found:
            raise BenchError("the bookie does not say what it has written")
        return sum(map(float, found))

    def restored_s(self, node: Node) -> float:
        """The seconds that a daemon, which must answer, has restored indexes from logs since its start."""
        return self.counted(node, "tidegate_index_log_restore_seconds_sum")

    def wait_logged(self, timeout_s: float) -> None:
        """Return once the index log has everything, if there is one."""
        if not (self.ours and self.log):
            return
        node = self.owner()
        until(
            "the index log to be up to date",
            lambda: (
                self.counted(node, "tidegate_index_logs") > 0
                and self.counted(node, "tidegate_index_log_waiting_bytes") < 65_536
                and self.counted(node, "tidegate_index_log_lag_seconds") < 1.0
            ),
            timeout_s,
            interval_s=0.1,
        )

    def daemon_peak_mib(self) -> float:
        """The peak memory of the topic owner's daemon since its start, by the kernel."""
        status = Path(f"/proc/{self.owner().daemon.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        return 0.0 if found is None else int(found[1]) / 1_024

    def processor_s(self) -> tuple[float, float]:
        """Processor time of the owner's broker, and of its daemon, since their starts, in seconds."""
        node = self.owner()
        return _processor_s(node.broker.pid), _processor_s(node.daemon.pid) if self.ours else 0.0


def _metrics(base_url: str, who: str) -> str:
    try:
        return httpx.get(f"{base_url}/metrics", timeout=5.0, trust_env=False).text
    except httpx.HTTPError as error:
        raise BenchError(f"{who} does not answer: {error}") from error


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
