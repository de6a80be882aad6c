"""The producer and consumers of a round: the real pulsar-client, made to survive faults.

After a second without a connection the client is dropped, and a new one opens once the broker's port answers
(see ``local.clients``). The verdict separates messages sent twice for that reason from a tracker's repeats.
Invariant: silence is no reason to replace a client: that would hide a tracker that has fallen asleep.
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
from tidegate.plugin.drill.plan import BEFORE, UNDELAYED, Plan, decode, encode
from tidegate.plugin.drill.reach import reach
from tidegate.plugin.drill.tally import Tally
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
    """The broker refuses us: another try is in vain."""


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
        self._work_s = 0.0
        self._ledger: Ledger | None = None
        self._tally: Tally | None = None
        self._start_ms = 0
        self._started = False
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
            # Set at once: dropping the client ends a call that waits for the broker.
            self._client = client
        try:
            if self._workers.closed.is_set():
                self.drop()  # `close` may have come before this client
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

    def begin(self, ledger: Ledger, tally: Tally, now_us: int) -> None:
        """Send the part of the plan before its start, and record receipts from now on."""
        self._ledger, self._tally = ledger, tally
        self._start_ms = now_us // 1000
        self._workers.run(self._send)
        self._workers.run(self._supervise)

    def start(self, start_us: int) -> None:
        """Send the rest of the plan; its times count from ``start_us``."""
        self._start_ms = start_us // 1000
        self._started = True

    @property
    def unconfirmed(self) -> int:
        """Messages, sent or to be resent, that the broker has not confirmed."""
        return self._sender.unconfirmed

    @property
    def online(self) -> bool:
        """True if there is a connected client."""
        return self._online.is_set()

    @property
    def settled(self) -> bool:
        """True if there is a client with all its parts connected."""
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

    # ---- for faults

    @property
    def consumers(self) -> int:
        """Number of subscribed consumers."""
        with self._lock:
            return len(self._consumers)

    @property
    def received(self) -> int:
        """Number of receipts."""
        return 0 if self._tally is None else self._tally.receipts

    def replace(self) -> None:
        """Drop the client; the supervisor opens another one as soon as a broker answers."""
        self.drop()

    def replace_consumer(self) -> None:
        """Close the oldest consumer and subscribe another one."""
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

    def working(self, each_s: float) -> None:
        """Let each consumer spend ``each_s`` on a message before the next one."""
        self._work_s = each_s

    # ---- inside

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

        receive(consumer, self._workers.closed, self._now_us, received, wait=self._before_each)

    def _before_each(self) -> None:
        self._receiving.wait()
        if self._work_s:
            self._workers.closed.wait(self._work_s)

    def _send(self) -> None:
        send_ms = self._plan.send_ms
        while not self._workers.closed.is_set():
            self._online.wait()
            # A whole number: with a fraction NumPy would convert the whole array at each look.
            elapsed_ms = self._now_us() // 1000 - self._start_ms if self._started else BEFORE
            self._sender.send_up_to(int(np.searchsorted(send_ms, elapsed_ms, side="right")))
            self._workers.closed.wait(_POLL_S)

    def send(self, producer: pulsar.Producer, number: int, answered: Answered) -> None:
        """See ``local.clients.Messages``."""
        due_ms = self._plan.due_ms.item(number)
        producer.send_async(
            encode(self._run_id, number),
            answered,
            partition_key=str(self._plan.keys.item(number)),
            deliver_at=None if due_ms == UNDELAYED else self._start_ms + due_ms,
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
