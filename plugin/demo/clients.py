"""The demo's producer and consumers: the real pulsar-client, and what it takes to live through a kill -9.

The client connects again by itself, but its pauses double (to as much as a minute) and cannot be set from
Python. So the demo does what a supervised application does: it drops the client when the broker dies and
opens a new one when it is back. Invariants:

- a message is the sender's until the broker has confirmed it: with a new client everything unconfirmed is
  sent again (it may then be on the topic twice; the audit tells these from a tracker's repeats);
- every call that may block has its own thread, and all of them end soon after ``close``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pulsar

from tidegate.plugin.demo.recorder import Recorder, now_us
from tidegate.plugin.demo.workload import Workload, decode, encode
from tidegate.plugin.errors import UserError

CONSUMERS = 2
# So few are under way that the kill -9 finds the sender at work, and so many that it never waits for an
# answer.
_UNCONFIRMED_MAX = 5_000
_POLL_S = 0.005
_RECEIVE_MS = 250
_JOIN_TIMEOUT_S = 5.0


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
        self._producer: pulsar.Producer | None = None
        self._threads: list[threading.Thread] = []
        self._unconfirmed: set[int] = set()
        self._again: deque[int] = deque()
        self._generation = 0
        self._lock = threading.Lock()
        self._online = threading.Event()
        self._closed = threading.Event()
        self._recorder: Recorder | None = None
        self._zero_ms = 0
        self._begun = False

    def connect(self) -> tuple[int, int]:
        """Open a client; returns when (in µs) the first consumer began to subscribe and was subscribed."""
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log_path))
        client = pulsar.Client(self._service_url, operation_timeout_seconds=10, logger=logger)
        with self._lock:
            # Known from the start, so that dropping it ends a call that waits for the broker.
            self._client = client
        try:
            if self._closed.is_set():
                raise ClientError("the demo is ending")
            before_us = now_us()
            consumers = [self._subscribe(client)]
            after_us = now_us()
            consumers += [self._subscribe(client) for _ in range(1, CONSUMERS)]
            producer = client.create_producer(
                self._topic,
                send_timeout_millis=0,
                max_pending_messages=4 * _UNCONFIRMED_MAX,
                # A delayed message is never batched; without batches a position is one message's.
                batching_enabled=False,
            )
        except pulsar.PulsarException as error:
            client.shutdown()
            raise ClientError(
                f"the Pulsar client cannot connect to {self._service_url}: {error}; its log: {self._log_path}"
            ) from error
        with self._lock:
            self._generation += 1
            self._again = deque(sorted(self._unconfirmed))
            self._unconfirmed.clear()
            self._producer = producer
        for consumer in consumers:
            self._run(self._consume, consumer)
        self._online.set()
        return before_us, after_us

    def fill(self, recorder: Recorder) -> None:
        """Send what the plan has before its start, and record from now on what comes."""
        self._recorder = recorder
        self._zero_ms = now_us() // 1000
        self._run(self._send)

    def begin(self, start_us: int) -> None:
        """Send the rest by the plan, whose times count from ``start_us``."""
        self._zero_ms = start_us // 1000
        self._begun = True

    @property
    def unconfirmed(self) -> int:
        """Messages sent, or to be sent again, that the broker has not confirmed."""
        with self._lock:
            return len(self._unconfirmed) + len(self._again)

    def drop(self) -> None:
        """Throw the client away: the broker is gone."""
        self._online.clear()
        with self._lock:
            client, self._client, self._producer = self._client, None, None
            self._generation += 1
        if client is not None:
            with contextlib.suppress(pulsar.PulsarException):
                client.shutdown()

    def close(self) -> None:
        """Drop the client and end every thread."""
        self._closed.set()
        self.drop()
        self._online.set()
        deadline_s = time.monotonic() + _JOIN_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))

    @property
    def stuck(self) -> bool:
        """Whether a thread is still inside the client's library; asked after ``close``."""
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        # Daemon threads: whatever the client's library does, an interrupted demo ends.
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _subscribe(self, client: pulsar.Client) -> pulsar.Consumer:
        return client.subscribe(
            self._topic,
            self._subscription,
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=1000,
        )

    # Receiving

    def _consume(self, consumer: pulsar.Consumer) -> None:
        while not self._closed.is_set():
            try:
                message = consumer.receive(timeout_millis=_RECEIVE_MS)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException:
                return
            received_us = now_us()
            acked_us = received_us
            try:
                consumer.acknowledge(message)
            except pulsar.PulsarException:
                acked_us = -1
            if self._recorder is not None:
                place = message.message_id()
                self._recorder.delivered(
                    decode(message.data()), place.ledger_id(), place.entry_id(), received_us, acked_us
                )

    # Sending

    def _send(self) -> None:
        send_ms = self._workload.send_ms
        following = 0
        while not self._closed.is_set():
            self._online.wait()
            elapsed_ms = now_us() / 1000 - self._zero_ms if self._begun else -1
            until = int(np.searchsorted(send_ms, elapsed_ms, side="right"))
            with self._lock:
                room = _UNCONFIRMED_MAX - len(self._unconfirmed)
                again = [self._again.popleft() for _ in range(min(room, len(self._again)))]
            fresh = range(following, min(until, following + max(room - len(again), 0)))
            following = fresh.stop
            for number in again:
                # The answer to the first attempt may have come after all.
                if self._recorder is None or not self._recorder.is_confirmed(number):
                    self._send_one(number)
            for number in fresh:
                self._send_one(number)
            if self._begun and following == len(send_ms) and not self.unconfirmed:
                # A kill still to come can make nothing unconfirmed again.
                return
            self._closed.wait(_POLL_S)

    def _send_one(self, number: int) -> None:
        with self._lock:
            producer, generation = self._producer, self._generation
            # Without a producer it waits for the next one, which sends everything unconfirmed.
            self._unconfirmed.add(number)
        if producer is None:
            return
        due_ms = int(self._workload.due_ms[number])
        try:
            producer.send_async(
                encode(number),
                functools.partial(self._answered, generation, number),
                deliver_at=self._zero_ms + due_ms if due_ms >= 0 else None,
            )
        except pulsar.PulsarException as error:
            self._answered(generation, number, error, None)

    def _answered(self, generation: int, number: int, result: object, _message_id: object) -> None:
        # On the client's own thread, where an exception would end the process.
        if result == pulsar.Result.Ok:
            with self._lock:
                self._unconfirmed.discard(number)
            if self._recorder is not None:
                self._recorder.confirmed(number)
            return
        with self._lock:
            if generation == self._generation and number in self._unconfirmed:
                self._unconfirmed.discard(number)
                self._again.append(number)
