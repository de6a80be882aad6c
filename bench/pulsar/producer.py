"""One producer in its own process: ``python -m bench.pulsar.producer URL TOPIC SCHEDULE.npy``.

The schedule is an int64 array of shape (n, 3): sequence number, sending time and deliver_at, in ms since the
epoch; a past sending time means at once. Pulsar's clients batch no delayed messages: each is an entry. Ends
when the broker has confirmed all; prints ``sent <n> <began> <confirmed>``, the wall clock in ns before the
first send and at the last confirmation, or fails at a refusal.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np
import pulsar

from bench.pulsar.receipts import PAYLOAD

CONFIRM_TIMEOUT_S = 60.0
_AT_ONCE = 10_000
"""Rows made Python's numbers at a time: a schedule may have ten million."""


def main(argv: list[str]) -> int:
    """Send the schedule and wait for the confirmations; returns the exit code."""
    url, topic, schedule_path = argv
    schedule = np.load(Path(schedule_path), mmap_mode="r")
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=5000)
    confirmed = [0, 0]
    confirmed_at_ns = [0]
    finished = threading.Event()

    def on_confirmed(result: pulsar.Result, _: pulsar.MessageId) -> None:
        confirmed[result != pulsar.Result.Ok] += 1
        if sum(confirmed) == len(schedule):
            confirmed_at_ns[0] = time.time_ns()
            finished.set()

    began_at_ns = time.time_ns()
    for begin in range(0, len(schedule), _AT_ONCE):
        for sequence, send_at_ms, deliver_at_ms in schedule[begin : begin + _AT_ONCE].tolist():
            wait_s = send_at_ms / 1e3 - time.time()
            if wait_s > 0:
                time.sleep(wait_s)  # the schedule names the moment
            producer.send_async(PAYLOAD.pack(sequence, deliver_at_ms), on_confirmed, deliver_at=deliver_at_ms)
    if len(schedule):
        finished.wait(CONFIRM_TIMEOUT_S)
    client.close()
    print(f"sent {confirmed[0]} {began_at_ns} {confirmed_at_ns[0]}", flush=True)
    return 0 if confirmed[0] == len(schedule) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
