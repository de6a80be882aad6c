"""A fill at full speed in its own process, killed in its middle: ``python -m bench.takeover.flood``.

Every few ms it writes its confirmations to a file that outlives it: pairs of int64, the wall clock in ns and
the messages confirmed by then, the first ones, since one producer's confirmations come in order. Every
fiftieth message is due soon, the others tomorrow.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pulsar
from numpy.typing import NDArray

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.harness.waiting import until
from bench.pulsar.receipts import PAYLOAD
from bench.takeover.backlog import FAR_MS, SPREAD_MS

FIRST = 1 << 40
"""The number of its first message: nothing else in the topic has such numbers."""
SOON_EVERY = 50
_NOTE = struct.Struct("<2q")
_NOTE_EVERY_NS = 5_000_000
_START_TIMEOUT_S = 30.0


def deliver_at_ms(place: int, soon_ms: int) -> int:
    """For the message ``place`` places after the first one."""
    if place % SOON_EVERY == 0:
        return soon_ms + place // SOON_EVERY % SPREAD_MS
    return soon_ms + FAR_MS[0] + place * 7_919 % (FAR_MS[1] - FAR_MS[0])


def soon(confirmed: int, soon_ms: int) -> dict[int, int]:
    """Number and deliver_at in ms of those due soon among the first ``confirmed``."""
    return {FIRST + place: deliver_at_ms(place, soon_ms) for place in range(0, confirmed, SOON_EVERY)}


def confirmed_by(notes: NDArray[np.int64], moment_ns: int) -> int:
    """The number confirmed by then, as far as recorded; ``notes`` has shape (n, 2)."""
    index = int(np.searchsorted(notes[:, 0], moment_ns, side="right"))
    return int(notes[index - 1, 1]) if index else 0


class Flood:
    """The parent's side. Use it as a context manager, at whose end the process is gone."""

    def __init__(self, url: str, topic: str, folder: Path, soon_ms: int) -> None:
        self._path = folder / "flood.log"
        self._path.unlink(missing_ok=True)
        with (folder / "clients.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.takeover.flood", url, topic, str(self._path), str(soon_ms)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def wait_confirmed(self, wanted: int) -> None:
        """Return once that many are confirmed."""
        until(
            "the fill to begin",
            lambda: len(notes := self.notes()) > 0 and int(notes[-1, 1]) >= wanted,
            _START_TIMEOUT_S,
        )
        if self._process.poll() is not None:
            raise BenchError("the fill has ended by itself; clients.log says why")

    def notes(self) -> NDArray[np.int64]:
        """Its records so far, of shape (n, 2)."""
        data = self._path.read_bytes() if self._path.exists() else b""
        whole = data[: len(data) // _NOTE.size * _NOTE.size]
        return np.frombuffer(whole, np.int64).reshape(-1, 2)

    def end(self) -> None:
        """Kill it: nothing is sent again."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10.0)

    def __enter__(self) -> Flood:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def main(argv: list[str]) -> None:
    """Send until killed."""
    url, topic, path, soon_ms = argv[0], argv[1], argv[2], int(argv[3])
    noting = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    confirmed = noted_ns = 0

    def on_confirmed(result: pulsar.Result, _: pulsar.MessageId) -> None:
        nonlocal confirmed, noted_ns
        if result != pulsar.Result.Ok:
            # Later ones would not be the first so many any more.
            os._exit(1)
        confirmed += 1
        now_ns = time.time_ns()
        if now_ns - noted_ns >= _NOTE_EVERY_NS:
            noted_ns = now_ns
            os.write(noting, _NOTE.pack(now_ns, confirmed))

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5_000)
    place = 0
    while True:
        at_ms = deliver_at_ms(place, soon_ms)
        producer.send_async(PAYLOAD.pack(FIRST + place, at_ms), on_confirmed, deliver_at=at_ms)
        place += 1


if __name__ == "__main__":
    main(sys.argv[1:])
