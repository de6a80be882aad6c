"""Live traffic: plain messages at a steady rate, from one process that sends and receives them.

``python -m bench.pulsar.live URL TOPIC RATE FILE`` prints ``live`` when it begins, and on SIGTERM writes to
the file an int64 array of shape (n, 3): when each message was sent, confirmed and received, in ns since the
epoch; 0: never.
"""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pulsar
from numpy.typing import NDArray

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT

TOPIC = "live"
MAX_SECONDS = 3_600
SENT, CONFIRMED, RECEIVED = range(3)
_NUMBER = struct.Struct("<q")
_END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Window:
    """A span of the wall clock, ns since the epoch."""

    began_ns: int
    ended_ns: int


@dataclass(frozen=True)
class LiveMessages:
    """``times``: a row (sent, confirmed, received) a message, in ns since the epoch."""

    times: NDArray[np.int64]

    def publish_ms(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """From sending to the broker's confirmation, of messages sent in the windows. Raises BenchError."""
        return self._taken_ms(windows, CONFIRMED)

    def arrival_ms(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """From sending to the consumer, of messages sent in the windows. Raises BenchError."""
        return self._taken_ms(windows, RECEIVED)

    def _taken_ms(self, windows: Sequence[Window], what: int) -> NDArray[np.float64]:
        sent = self.times[:, SENT]
        chosen = np.zeros(len(sent), bool)
        for window in windows:
            chosen |= (sent >= window.began_ns) & (sent < window.ended_ns)
        of_these = self.times[chosen]
        if not len(of_these) or (of_these[:, what] == 0).any():
            raise BenchError("live messages are missing: the broker or the client had stopped")
        taken: NDArray[np.float64] = (of_these[:, what] - of_these[:, SENT]) / 1e6
        return taken


class LiveTraffic:
    """The process; a context manager. ``folder`` gets its log and its file."""

    def __init__(self, service_url: str, folder: Path, per_s: int) -> None:
        self._file = folder / "live.npy"
        self._log = (folder / "live.log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pulsar.live", service_url, TOPIC, str(per_s), str(self._file)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Self:
        """Return once messages flow."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "live":
            self._end()
            raise BenchError(f"live traffic could not begin: see {self._log.name}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def stop(self) -> LiveMessages:
        """End it; returns its measurements. Raises BenchError."""
        self._process.terminate()
        try:
            self._process.wait(_END_TIMEOUT_S)
            return LiveMessages(np.load(self._file))
        except (subprocess.TimeoutExpired, OSError) as error:
            raise BenchError(f"live traffic did not end well: {error}") from error

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10.0)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def main(argv: list[str]) -> None:
    """Send and receive until a signal ends it."""
    url, topic, per_s, file = argv
    rate = int(per_s)
    times = np.zeros((rate * MAX_SECONDS, 3), np.int64)
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))

    def on_message(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        times[_NUMBER.unpack(message.data())[0], RECEIVED] = time.time_ns()
        consumer.acknowledge(message)

    consumer = client.subscribe(
        topic, "live", consumer_type=pulsar.ConsumerType.Shared, message_listener=on_message
    )
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    print("live", flush=True)
    began_s = time.monotonic()
    number = 0

    def send() -> None:
        mine = number

        def on_confirmed(result: pulsar.Result, _: pulsar.MessageId) -> None:
            if result == pulsar.Result.Ok:
                times[mine, CONFIRMED] = time.time_ns()

        times[mine, SENT] = time.time_ns()
        producer.send_async(_NUMBER.pack(mine), on_confirmed)

    while number < len(times) and not ending.wait(max(0.0, began_s + number / rate - time.monotonic())):
        send()
        number += 1
    producer.flush()
    # The last are on their way to the consumer; a message that has not come then is missing.
    deadline_s = time.monotonic() + 5.0
    while number and not times[:number, RECEIVED].all() and time.monotonic() < deadline_s:
        time.sleep(0.01)  # the listener fills an array, and notifies nobody
    consumer.close()
    np.save(Path(file), times[:number])
    client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
