"""The producer and consumers of a round: the real pulsar-client, made to survive faults.

When there has been no connection for a second, the client is dropped, and a new one is opened as soon as the
broker's port answers (see ``local.clients``). The verdict tells messages sent twice for that reason from a
tracker's repeats. Invariant: silence is no reason to replace a client: that would hide a tracker that has
fallen asleep.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pulsar

from tidegate.plugin.drill.ledger import Ledger
from tidegate.plugin.drill.plan import Plan, decode, encode
from tidegate.plugin.drill.reach import reach
from tidegate.plugin.errors import UserError
from tidegate.plugin.local.clients import PRODUCER, Answered, Sender, Workers, receive

CONSUMERS = 2
_OPERATION_TIMEOUT_S = 5
_POLL_S = 0.005
_WATCH_S = 0.1
_GIVE_UP_S = 1.0
_REFUSALS = (
    pulsar.AuthenticationError,
    pulsar.AuthorizationError,
    pulsar.InvalidTopicName,
    pulsar.NotAllowedError,
    pulsar.TopicNotFound,
)


class ClientError(UserError):
    """The Pulsar client could not connect; the message says where to look."""


class RefusedError(ClientError):
    """The broker refuses us: another try would not help."""


class Tally:
    """Live counts of a round, for a view; any thread may call every method."""

    def __init__(self, plan: Plan, start_us: int) -> None:
        self._due_us = start_us + plan.due_ms * 1000
        self._due_order = np.sort(plan.due_ms[plan.expected]) * 1000 + start_us
        self._start_us = start_us
        self._expected = bytes(plan.expected)
        self._seen = bytearray(len(plan))
        self._confirmed = bytearray(len(plan))
        self._again = bytearray(len(plan))
        self._missing = sum(self._expected)
        self._lock = threading.Lock()
        self.sent = self.received = self.early = self.again = self.receipts = 0
        self.worst_ms: list[float | None] = []
        self.last_us = start_us

    def confirmed(self, number: int) -> bool:
        """The broker has stored message ``number``; True if that is news."""
        with self._lock:
            if self._confirmed[number]:
                return False
            self._confirmed[number] = 1
            self.sent += 1
            return True

    def is_confirmed(self, number: int) -> bool:
        """True if the broker has stored message ``number``."""
        return bool(self._confirmed[number])

    def delivered(self, number: int, at_us: int) -> None:
        """A consumer received message ``number``."""
        with self._lock:
            self.receipts += 1
            self.last_us = at_us
            if self._expected[number] and (not self._seen[number] or self._again[number]):
                self._missing -= 1
            self._again[number] = 0
            if self._seen[number]:
                self.again += 1
                return
            self._seen[number] = 1
            self.received += 1
            late_us = at_us - self._due_us.item(number)
            self.early += late_us < 0
            second = max((at_us - self._start_us) // 1_000_000, 0)
            self.worst_ms.extend([None] * (second + 1 - len(self.worst_ms)))
            worst_ms = self.worst_ms[second]
            self.worst_ms[second] = late_us / 1000 if worst_ms is None else max(worst_ms, late_us / 1000)

    def rewinding(self) -> None:
        """A reset of the cursor is about to begin: stored messages come again."""
        with self._lock:
            self._again = bytearray(self._confirmed)
            expected, seen, again = (
                np.frombuffer(one, np.uint8) != 0 for one in (self._expected, self._seen, self._again)
            )
            self._missing = int(np.count_nonzero(expected & (~seen | again)))

    def due(self, now_us: int) -> int:
        """How many messages are due at ``now_us``."""
        return int(np.searchsorted(self._due_order, now_us, side="right"))

    @property
    def missing(self) -> int:
        """How many messages due in the round are missing, or missing again since the cursor's reset.

        Counted as receipts come: the drill asks all the time, and there may be millions.
        """
        return self._missing


class Clients:
    """A producer and Shared (or Key_Shared) consumers of one topic.

    ``service_url`` is called at each connection; ``token`` authenticates there.
    """

    def __init__(
        self,
        service_url: Callable[[], str],
        topic: str,
        subscription: str,
        *,
        plan: Plan,
        run: int,
        log_path: Path,
        now_us: Callable[[], int],
        token: str | None = None,
        key_shared: bool = False,
        consumers: int = CONSUMERS,
    ) -> None:
        self._service_url = service_url
        self._topic = topic
        self._subscription = subscription
        self._plan = plan
        self._run_id = run
        self._log_path = log_path
        self._now_us = now_us
        self._wanted = consumers
        self._type = pulsar.ConsumerType.KeyShared if key_shared else pulsar.ConsumerType.Shared
        self._authentication = None if token is None else pulsar.AuthenticationToken(token)
        self._client: pulsar.Client | None = None
        self._consumers: deque[pulsar.Consumer] = deque()
        self._workers = Workers(self._guard)
        self._sender = Sender(self)
        self._subscribed = 0
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._online = threading.Event()
        self._receiving = threading.Event()
        self._receiving.set()
        self._ledger: Ledger | None = None
        self._tally: Tally | None = None
        self._start_ms = 0
        self.failure: UserError | None = None

    def connect(self) -> None:
        """Open a client. Raises ``ClientError``; drop an earlier client first."""
        service_url = self._service_url()
        reach(service_url)
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log_path))
        client = pulsar.Client(
            service_url,
            authentication=self._authentication,
            operation_timeout_seconds=_OPERATION_TIMEOUT_S,
            logger=logger,
        )
        with self._lock:
            # Set at once, so that dropping it ends a call that waits for the broker.
            self._client = client
        try:
            if self._workers.closed.is_set():
                raise ClientError("the drill is ending")
            consumers = [self._subscribe(client) for _ in range(self._wanted)]
            producer = client.create_producer(self._topic, **PRODUCER)
        except pulsar.PulsarException as error:
            client.shutdown()
            raise (RefusedError if isinstance(error, _REFUSALS) else ClientError)(
                f"the Pulsar client cannot connect to {service_url}: {error}; its log: {self._log_path}"
            ) from error
        self._sender.begin(producer)
        with self._lock:
            self._consumers = deque(consumers)
        for consumer in consumers:
            self._start_consumer(consumer)
        self._online.set()

    def begin(self, ledger: Ledger, tally: Tally, start_us: int) -> None:
        """Send the plan, whose times count from ``start_us``, and record receipts."""
        self._ledger, self._tally = ledger, tally
        self._start_ms = start_us // 1000
        self._workers.run(self._send)
        self._workers.run(self._supervise)

    @property
    def unconfirmed(self) -> int:
        """The number of messages, sent or to be resent, that the broker has not confirmed."""
        return self._sender.unconfirmed

    @property
    def online(self) -> bool:
        """True if there is a connected client."""
        return self._online.is_set()

    @property
    def settled(self) -> bool:
        """True if there is a client and every part of it is connected now."""
        return self._online.is_set() and self._is_connected()

    def drop(self) -> None:
        """Drop the client."""
        self._online.clear()
        with self._lock:
            client, self._client = self._client, None
            self._consumers.clear()
        self._sender.end()
        if client is not None:
            with contextlib.suppress(pulsar.PulsarException):
                client.shutdown()

    def close(self) -> None:
        """Drop the client and end every thread."""
        self._workers.closed.set()
        self.drop()
        self._online.set()
        self._receiving.set()
        self._workers.join()

    @property
    def stuck(self) -> bool:
        """True if a thread is still inside the client's library; call it after ``close``."""
        return self._workers.stuck

    # Used by faults

    @property
    def consumers(self) -> int:
        """The number of subscribed consumers."""
        with self._lock:
            return len(self._consumers)

    @property
    def received(self) -> int:
        """The number of receipts."""
        return 0 if self._tally is None else self._tally.receipts

    def replace(self) -> None:
        """Drop the client; the supervisor opens another one as soon as a broker answers."""
        self.drop()

    def replace_consumer(self) -> None:
        """Close the oldest consumer, and subscribe another one."""
        with self._lock:
            client = self._client
            oldest = self._consumers.popleft() if self._consumers else None
        if client is None or oldest is None:
            raise ClientError("there is no connected consumer to replace")
        try:
            oldest.close()
            consumer = self._subscribe(client)
        except pulsar.PulsarException as error:
            raise ClientError(f"a consumer could not be replaced: {error}") from error
        with self._lock:
            self._consumers.append(consumer)
        self._start_consumer(consumer)

    def receiving(self, *, on: bool) -> None:
        """Let the consumers take messages from their queues, or stop them."""
        (self._receiving.set if on else self._receiving.clear)()

    # Inside

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except UserError as error:
            self.failure = error

    def _subscribe(self, client: pulsar.Client) -> pulsar.Consumer:
        return client.subscribe(
            self._topic,
            self._subscription,
            consumer_type=self._type,
            initial_position=pulsar.InitialPosition.Latest,
            receiver_queue_size=1000,
        )

    def _start_consumer(self, consumer: pulsar.Consumer) -> None:
        self._subscribed += 1
        self._workers.run(self._consume, consumer, self._subscribed)

    def _supervise(self) -> None:
        gone_s = 0.0
        while not self._workers.closed.wait(_WATCH_S):
            if self._online.is_set() and self._is_connected():
                gone_s = 0.0
                continue
            gone_s += _WATCH_S
            if self._online.is_set() and gone_s < _GIVE_UP_S:
                continue
            self.drop()
            with contextlib.suppress(UserError), self._connecting:
                self.connect()
                gone_s = 0.0

    def _is_connected(self) -> bool:
        with self._lock:
            consumers = list(self._consumers)
        return self._sender.is_connected and all(consumer.is_connected() for consumer in consumers)

    def _consume(self, consumer: pulsar.Consumer, place: int) -> None:
        def received(message: pulsar.Message, received_at: int, acked_at: int) -> None:
            number = decode(self._run_id, message.data())
            # A user's own topic may have other people's messages.
            if number is None or number >= len(self._plan) or self._ledger is None or self._tally is None:
                return
            where = message.message_id()
            self._ledger.received(
                number,
                place,
                message.redelivery_count(),
                (where.ledger_id(), where.entry_id()),
                received_us=received_at,
                acked_us=acked_at,
            )
            self._tally.delivered(number, received_at)

        receive(consumer, self._workers.closed, self._now_us, received, wait=self._receiving.wait)

    def _send(self) -> None:
        send_ms = self._plan.send_ms
        while not self._workers.closed.is_set():
            self._online.wait()
            # A whole number: with a fraction NumPy would convert the whole array at each look.
            elapsed_ms = self._now_us() // 1000 - self._start_ms
            self._sender.send_up_to(int(np.searchsorted(send_ms, elapsed_ms, side="right")))
            self._workers.closed.wait(_POLL_S)

    def send(self, producer: pulsar.Producer, number: int, answered: Answered) -> None:
        """See ``local.clients.Messages``."""
        producer.send_async(
            encode(self._run_id, number),
            answered,
            partition_key=str(self._plan.keys.item(number)),
            deliver_at=self._start_ms + self._plan.due_ms.item(number),
        )

    def confirmed(self, number: int) -> None:
        """See ``local.clients.Messages``."""
        try:
            if self._tally is not None and self._ledger is not None and self._tally.confirmed(number):
                self._ledger.confirmed(number)
        except UserError as error:
            self.failure = error

    def is_confirmed(self, number: int) -> bool:
        """See ``local.clients.Messages``."""
        return self._tally is not None and self._tally.is_confirmed(number)
