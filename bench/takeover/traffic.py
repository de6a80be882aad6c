"""A steady producer and a consumer that follow their topic from broker to broker, and record events.

Invariant: a message recorded as confirmed is in the topic; a delivery is recorded before the next is
received.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pulsar

from bench.harness.errors import BenchError
from bench.harness.waiting import until
from bench.pulsar.receipts import PAYLOAD
from bench.pulsar.stand import SUBSCRIPTION
from bench.takeover.judge import Arrival
from tidegate.plugin.checks import NEVER
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.clients import Workers, receive

PER_S = 20
DELAYS_MS = (1_000, 4_000)
_OPERATION_TIMEOUT_S = 20
_RECEIVE_MS = 50
_WATCH_S = 0.001
_CONNECT_S = 120.0


class _Consumer:
    """A consumer that can stop acknowledging: it then refuses, as without a connection."""

    def __init__(self, consumer: pulsar.Consumer, traffic: Traffic) -> None:
        self.receive = consumer.receive
        self._consumer = consumer
        self._traffic = traffic

    def acknowledge(self, message: pulsar.Message) -> None:
        """Acknowledge, or raise ``pulsar.PulsarException``."""
        with self._traffic.acknowledging:
            if self._traffic.rests:
                raise pulsar.NotConnected(f"{message.message_id()} is not acknowledged: the client rests")
            self._consumer.acknowledge(message)


class Traffic:
    """Messages numbered from ``first``, ``PER_S`` a second, each delayed by some seconds, and their consumer.

    due: deliver_at in ms of each confirmed message. confirm_ns, confirmed_at_ns: durations and times of the
    confirmations. Messages due in an hour are not for this consumer and not recorded. rests: nothing is
    acknowledged; changed and read with ``acknowledging``.
    """

    def __init__(self, topic: str, log_path: Path, first: int) -> None:
        self.due: dict[int, int] = {}
        self.confirm_ns: list[int] = []
        self.confirmed_at_ns: list[int] = []
        self.arrivals: list[Arrival] = []
        self.connected_at_ns: list[int] = []
        self.acknowledging = threading.Lock()
        self.rests = False
        self._topic = topic
        self._log_path = log_path
        self._next = self.first = first
        self._random = np.random.default_rng(first)
        self._workers = Workers()
        self._lock = threading.Lock()
        self._client: pulsar.Client | None = None
        self._producer: pulsar.Producer | None = None

    def start(self, service_url: Callable[[], str]) -> None:
        """Connect, and continue until ``close``.

        ``service_url`` raises ``UserError`` while no broker answers.
        """
        self._connect(service_url)
        self._workers.run(self._send)

    def close(self) -> None:
        """End both."""
        self._workers.closed.set()
        self._drop()
        self._workers.join()

    def replace(self, service_url: Callable[[], str]) -> None:
        """Replace the client, which may not notice for long that its broker is gone."""
        self._drop()
        self._connect(service_url)

    def rest(self, quiet_s: float) -> None:
        """Stop acknowledging, as a client that is drained; returns after ``quiet_s`` of that.

        Arrivals meanwhile are recorded as not acknowledged. A reconnection resumes.
        """
        with self.acknowledging:
            self.rests = True
        time.sleep(quiet_s)  # nobody tells when the broker has stored the last acknowledgement

    def wait_connected(self, since_ns: int, timeout_s: float) -> int:
        """The consumer's first connection after a moment, both in ns of the wall clock."""
        return until(
            "the consumer to be connected again",
            lambda: next((at for at in self.connected_at_ns if at >= since_ns), None),
            timeout_s,
            interval_s=0.005,
        )

    def _drop(self) -> None:
        with self._lock:
            client, self._client, self._producer = self._client, None, None
        if client is not None:
            with contextlib.suppress(pulsar.PulsarException):
                client.shutdown()

    def _connect(self, service_url: Callable[[], str]) -> None:
        give_up_s = time.monotonic() + _CONNECT_S
        while True:
            try:
                self._connect_once(service_url())
                return
            except (UserError, pulsar.PulsarException) as error:
                if time.monotonic() > give_up_s:
                    raise BenchError(f"no client could connect within {_CONNECT_S:.0f} s: {error}") from error
                # There is no event to wait for: another process's state shows only by asking.
                time.sleep(0.05)

    def _connect_once(self, service_url: str) -> None:
        client = pulsar.Client(
            service_url,
            operation_timeout_seconds=_OPERATION_TIMEOUT_S,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log_path)),
        )
        try:
            consumer = client.subscribe(
                self._topic,
                SUBSCRIPTION,
                consumer_type=pulsar.ConsumerType.Shared,
                initial_position=pulsar.InitialPosition.Earliest,
            )
            self._connected()
            producer = client.create_producer(self._topic, batching_enabled=False, send_timeout_millis=0)
        except BaseException:
            client.shutdown()
            raise
        with self._lock:
            self._client, self._producer = client, producer
        self._workers.run(self._receive, consumer)
        self._workers.run(self._watch, consumer)

    def _connected(self) -> None:
        """Record it."""
        self.connected_at_ns.append(time.time_ns())
        with self.acknowledging:
            self.rests = False

    def _watch(self, consumer: pulsar.Consumer) -> None:
        """Record when the client has reconnected by itself. The client has no event for it."""
        connected = True
        while not self._workers.closed.wait(_WATCH_S):
            now = consumer.is_connected()
            if now and not connected:
                self._connected()
            connected = now
            with self._lock:
                if self._client is None:
                    return

    def _receive(self, consumer: pulsar.Consumer) -> None:
        def received(message: pulsar.Message, received_at: int, acked_at: int) -> None:
            number, deliver_at_ms = PAYLOAD.unpack(message.data())
            where = message.message_id()
            position = (where.ledger_id(), where.entry_id())
            acked_at_ns = 0 if acked_at == NEVER else acked_at
            self.arrivals.append(Arrival(number, position, deliver_at_ms, received_at, acked_at_ns))

        taking = _Consumer(consumer, self)
        receive(taking, self._workers.closed, time.time_ns, received, timeout_ms=_RECEIVE_MS)

    def _send(self) -> None:
        while not self._workers.closed.wait(1 / PER_S):
            with self._lock:
                producer = self._producer
            if producer is None:
                continue
            number, self._next = self._next, self._next + 1
            began_at_ns = time.time_ns()
            deliver_at_ms = began_at_ns // 1_000_000 + int(self._random.integers(*DELAYS_MS))
            confirmed = functools.partial(self._confirmed, number, deliver_at_ms, began_at_ns)
            with contextlib.suppress(pulsar.PulsarException):
                producer.send_async(PAYLOAD.pack(number, deliver_at_ms), confirmed, deliver_at=deliver_at_ms)

    def _confirmed(
        self, number: int, deliver_at_ms: int, began_at_ns: int, result: pulsar.Result, _: pulsar.MessageId
    ) -> None:
        if result == pulsar.Result.Ok:
            confirmed_at_ns = time.time_ns()
            self.confirm_ns.append(confirmed_at_ns - began_at_ns)
            self.confirmed_at_ns.append(confirmed_at_ns)
            self.due[number] = deliver_at_ms
