"""A test stand: one real broker with one of the three trackers, its clients, and our daemon if needed.

The stands of a run differ in the tracker alone. All data are below the stand's folder, removed at the end.
Signals go only to processes started here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.harness.parts import pulsar_home, shim_jar
from bench.harness.trackers import TrackerPeer
from bench.harness.waiting import until
from bench.pulsar import receipts
from bench.pulsar.admin import Admin
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.counters import telemetry_options
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.process import free_ports
from tidegate.plugin.local.trackers import FACTORY_KEY, tidegate_conf

SUBSCRIPTION = "bench"
PROCESS_START_MS = 2500
"""How long a client process may take from its start to its first message."""


@dataclass(frozen=True)
class Sent:
    """A producer's result, with the wall clock in ns at its first send and at the last confirmation."""

    count: int
    began_at_ns: int
    confirmed_at_ns: int

    @property
    def per_s(self) -> float:
        """Messages a second; the broker had confirmed them all by the end."""
        return self.count / max(1, self.confirmed_at_ns - self.began_at_ns) * 1e9


class Consumer:
    """A consumer process, and its receipts so far."""

    def __init__(
        self, stand: Stand, topic: str, receipts_path: Path, subscription: str, *, acknowledges: bool
    ) -> None:
        self.receipts_path = receipts_path
        self._errors = (stand.folder / "clients.log").open("ab")
        command = [
            sys.executable,
            "-m",
            "bench.pulsar.consumer",
            stand.broker.service_url,
            topic,
            subscription,
            str(receipts_path),
        ]
        if not acknowledges:
            command.append("--no-ack")
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if len(words) != 2 or words[0] != "subscribed":
            self.stop()
            raise BenchError(f"a consumer could not subscribe: {stand.last_words()}")
        self.subscribed_at_ns = int(words[1])
        """Wall clock when the broker had accepted the subscription."""

    @property
    def received(self) -> int:
        """The number of messages received."""
        return receipts.count(self.receipts_path)

    def records(self) -> NDArray[np.void]:
        """Its receipts (bench.pulsar.receipts.RECORD)."""
        return receipts.read(self.receipts_path)

    def wait_received(self, wanted: int, timeout_s: float) -> None:
        """Return once it has received that many different messages."""
        until(
            f"{wanted:,} messages, of which {self.receipts_path.name} has too few",
            lambda: self.received >= wanted and len(np.unique(self.records()["sequence"])) >= wanted,
            timeout_s,
        )

    def stop(self, *, kill: bool = False) -> None:
        """End the process: it leaves the broker first, unless killed."""
        if self._process.poll() is None:
            if kill:
                self._process.kill()
            else:
                self._process.terminate()
            try:
                self._process.wait(15.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


class Stand:
    """A broker with one tracker; use as a context manager, which starts it and cleans up after it."""

    def __init__(
        self,
        tracker: TrackerPeer,
        *,
        conf: Mapping[str, str] | None = None,
        heap_mib: int = 1024,
        direct_mib: int = 1024,
    ) -> None:
        self.tracker = tracker
        self.folder = Path(tempfile.mkdtemp(prefix="tidegate-bench-"))
        self.daemon = Daemon(self.folder / "daemon") if tracker.needs_daemon else None
        chosen = {FACTORY_KEY: tracker.factory}
        if self.daemon is not None:
            chosen = tidegate_conf(self.daemon.socket_path)
        (telemetry_port,) = free_ports(1)
        self.broker = Broker(
            pulsar_home(),
            self.folder / "broker",
            conf={**chosen, **tracker.conf, **(conf or {})},
            extra_classpath=[shim_jar()] if self.daemon is not None else [],
            heap_mib=heap_mib,
            direct_mib=direct_mib,
            jvm_options=telemetry_options(telemetry_port),
        )
        self.admin = Admin(self.broker.admin_url, telemetry_port)
        self._consumers: list[Consumer] = []
        self._producers: list[subprocess.Popen[str]] = []
        self._files = 0

    def __enter__(self) -> Self:
        try:
            if self.daemon is not None:
                self.daemon.start()
            self.broker.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if kind is None or os.environ.get("TIDEGATE_BENCH_KEEP") is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def consumer(
        self, topic: str, subscription: str = SUBSCRIPTION, *, acknowledges: bool = True
    ) -> Consumer:
        """A new consumer process on the topic; returns once it has subscribed."""
        self._files += 1
        receipts_path = self.folder / f"received-{self._files}.log"
        consumer = Consumer(self, topic, receipts_path, subscription, acknowledges=acknowledges)
        self._consumers.append(consumer)
        return consumer

    def start_sending(self, topic: str, schedule: NDArray[np.int64]) -> subprocess.Popen[str]:
        """Start a producer process with a schedule (``producer``); ``finish_sending`` waits for it."""
        self._files += 1
        path = self.folder / f"schedule-{self._files}.npy"
        np.save(path, schedule)
        with (self.folder / "clients.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.pulsar.producer", self.broker.service_url, topic, str(path)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._producers.append(process)
        return process

    def finish_sending(self, process: subprocess.Popen[str], timeout_s: float) -> Sent:
        """Wait until the broker has confirmed every message of the producer."""
        output, _ = process.communicate(timeout=timeout_s)
        words = output.split()
        if process.returncode != 0 or len(words) != 4:
            raise BenchError(f"a producer failed: {self.last_words()}")
        count, began_at_ns, confirmed_at_ns = map(int, words[1:])
        return Sent(count, began_at_ns, confirmed_at_ns)

    def send(self, topic: str, schedule: NDArray[np.int64], timeout_s: float = 600.0) -> Sent:
        """Send a schedule and wait until every message is confirmed."""
        return self.finish_sending(self.start_sending(topic, schedule), timeout_s)

    def wait_delayed(self, topic: str, wanted: int, timeout_s: float) -> None:
        """Return once the tracker has at least that many messages."""
        until(
            f"{wanted:,} messages in the {self.tracker.name} tracker",
            lambda: self.admin.delayed(topic, SUBSCRIPTION) >= wanted,
            timeout_s,
            interval_s=0.2,
        )

    def last_words(self) -> str:
        """The end of the clients' log."""
        text = (self.folder / "clients.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-8:])

    def _end(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.admin.close)
            if self.daemon is not None:
                stack.callback(self.daemon.kill)
            stack.callback(self.broker.kill)
            for producer in self._producers:
                if producer.poll() is None:
                    producer.kill()
                    producer.wait(10.0)
                if producer.stdout is not None:
                    producer.stdout.close()
            for consumer in self._consumers:
                consumer.stop(kill=True)


def now_ms() -> int:
    """The wall clock in ms since the epoch."""
    return time.time_ns() // 1_000_000
