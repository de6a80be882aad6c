"""The demo's producer and consumers: the real pulsar-client, dropped when the broker dies and replaced when
it is back (see ``local.clients``). The audit tells messages sent twice for that reason from a tracker's
repeats.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import numpy as np
import pulsar

from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.workload import Workload, decode, encode
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.clients import PRODUCER, Answered, Sender, Workers, receive

CONSUMERS = 2
_POLL_S = 0.005


class ClientError(UserError):
    """The Pulsar client could not connect; the message says where to look."""


class Clients:
    """A producer and ``CONSUMERS`` Shared consumers of one topic, replaced by ``connect`` after a kill."""

    def __init__(
        self, service_url: str, topic: str, subscription: str, workload: Workload, log_path: Path
    ) -> None:
        self._service_url = service_url
        self._topic = topic
        self._subscription = subscription
        self._workload = workload
        self._log_path = log_path
        self._client: pulsar.Client | None = None
        self._workers = Workers()
        self._sender = Sender(self)
        self._lock = threading.Lock()
        self._online = threading.Event()
        self._recorder: Recorder | None = None
        self._zero_ms = 0
        self._begun = False

    def connect(self) -> tuple[int, int]:
        """Open a client; returns when (in µs) the first consumer began to subscribe and was subscribed."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log_path))
        client = pulsar.Client(self._service_url, operation_timeout_seconds=10, logger=logger)
        with self._lock:
            # Set at once, so that dropping it ends a call that waits for the broker.
            self._client = client
        try:
            if self._workers.closed.is_set():
                raise ClientError("the demo is ending")
            before_us = now_us()
            consumers = [self._subscribe(client)]
            after_us = now_us()
            consumers += [self._subscribe(client) for _ in range(1, CONSUMERS)]
            producer = client.create_producer(self._topic, **PRODUCER)
        except pulsar.PulsarException as error:
            client.shutdown()
            raise ClientError(
                f"the Pulsar client cannot connect to {self._service_url}: {error}; its log: {self._log_path}"
            ) from error
        self._sender.begin(producer)
        for consumer in consumers:
            self._workers.run(receive, consumer, self._workers.closed, now_us, self._received)
        self._online.set()
        return before_us, after_us

    def fill(self, recorder: Recorder) -> None:
        """Send the part of the plan before its start, and record receipts from now on."""
        self._recorder = recorder
        self._zero_ms = now_us() // 1000
        self._workers.run(self._send)

    def begin(self, start_us: int) -> None:
        """Send the rest of the plan, whose times count from ``start_us``."""
        self._zero_ms = start_us // 1000
        self._begun = True

    @property
    def unconfirmed(self) -> int:
        """The number of messages, sent or to be resent, that the broker has not confirmed."""
        return self._sender.unconfirmed

    def drop(self) -> None:
        """Drop the client: the broker is gone."""
        self._online.clear()
        with self._lock:
            client, self._client = self._client, None
        self._sender.end()
        if client is not None:
            with contextlib.suppress(pulsar.PulsarException):
                client.shutdown()

    def close(self) -> None:
        """Drop the client and end every thread."""
        self._workers.closed.set()
        self.drop()
        self._online.set()
        self._workers.join()

    @property
    def stuck(self) -> bool:
        """True if a thread is still inside the client's library; call it after ``close``."""
        return self._workers.stuck

    def _subscribe(self, client: pulsar.Client) -> pulsar.Consumer:
        return client.subscribe(
            self._topic,
            self._subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1000,
        )

    def _received(self, message: pulsar.Message, received_at: int, acked_at: int) -> None:
        if self._recorder is not None:
            place = message.message_id()
            self._recorder.delivered(
                decode(message.data()), place.ledger_id(), place.entry_id(), received_at, acked_at
            )

    # Sending

    def _send(self) -> None:
        send_ms = self._workload.send_ms
        while not self._workers.closed.is_set():
            self._online.wait()
            elapsed_ms = now_us() / 1000 - self._zero_ms if self._begun else -1
            self._sender.send_up_to(int(np.searchsorted(send_ms, elapsed_ms, side="right")))
            if self._begun and self._sender.sent == len(send_ms) and not self.unconfirmed:
                # A kill still to come cannot make anything unconfirmed again.
                return
            self._workers.closed.wait(_POLL_S)

    def send(self, producer: pulsar.Producer, number: int, answered: Answered) -> None:
        """See ``local.clients.Messages``."""
        due_ms = int(self._workload.due_ms[number])
        producer.send_async(
            encode(number), answered, deliver_at=self._zero_ms + due_ms if due_ms >= 0 else None
        )

    def confirmed(self, number: int) -> None:
        """See ``local.clients.Messages``."""
        if self._recorder is not None:
            self._recorder.confirmed(number)

    def is_confirmed(self, number: int) -> bool:
        """See ``local.clients.Messages``."""
        return self._recorder is not None and self._recorder.is_confirmed(number)
