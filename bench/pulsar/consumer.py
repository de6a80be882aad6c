"""One consumer in its own process: ``python -m bench.pulsar.consumer``.

Arguments: URL TOPIC SUBSCRIPTION RECEIPTS [--no-ack]. Stamps each message when ``receive`` returns,
acknowledges it, and records both times (``receipts``). Prints ``subscribed <ns since the epoch>`` once the
broker has accepted the subscription. Ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

import pulsar

from bench.pulsar.receipts import PAYLOAD, ReceiptWriter

RECEIVE_MS = 200
SUBSCRIBE_TIMEOUT_S = 300
"""A tracker that recovers before it lets a consumer in must be measured, not given up."""


def main(argv: list[str]) -> None:
    """Receive until a signal ends it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("topic")
    parser.add_argument("subscription")
    parser.add_argument("receipts", type=Path)
    parser.add_argument("--no-ack", action="store_true")
    arguments = parser.parse_args(argv)
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    client = pulsar.Client(
        arguments.url,
        operation_timeout_seconds=SUBSCRIBE_TIMEOUT_S,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn),
    )
    consumer = client.subscribe(
        arguments.topic,
        arguments.subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    print(f"subscribed {time.time_ns()}", flush=True)
    with ReceiptWriter(arguments.receipts) as receipts:
        while not ending:
            try:
                message = consumer.receive(timeout_millis=RECEIVE_MS)
            except pulsar.Timeout:
                continue
            arrived_at_ns = time.time_ns()
            sequence, deliver_at_ms = PAYLOAD.unpack(message.data())
            acked_at_ns = 0
            if not arguments.no_ack:
                consumer.acknowledge(message)
                acked_at_ns = time.time_ns()
            receipts.append(sequence, deliver_at_ms, arrived_at_ns, acked_at_ns)
    client.close()


if __name__ == "__main__":
    main(sys.argv[1:])
