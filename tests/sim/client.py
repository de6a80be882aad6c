"""A consumer's client: subscribes at the topic's owner, keeps its messages, acknowledges sooner or later.

It judges each message: the first time, or the reason for a repeat.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.bookkeeper import NO_DELAY, Position, TopicLog
from tests.sim.dispatcher import Consumer, Delivery, Dispatcher
from tests.sim.kernel import NS_PER_MS, Event, Kernel, Violation
from tests.sim.obligations import Cause, Obligations

_BACKOFF_MS = (20, 200)


class Client:
    """One consumer of one subscription. `find` gives the dispatcher to subscribe at, or None."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        obligations: Obligations,
        log: TopicLog,
        find: Callable[[], Dispatcher | None],
        again_because: Callable[[Position], Cause | None],
        network_ns: int,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.obligations = obligations
        self.permits = 10
        self.ack_after_ms: tuple[int, int] | None = None
        self.wanted = False
        self.consumer: Consumer | None = None
        self.unprocessed: dict[Position, Delivery] = {}
        self.left_over: list[Position] = []  # of former connections: may be acknowledged late
        self._log = log
        self._find = find
        self._again_because = again_because
        self._network_ns = network_ns
        self._connecting: Event | None = None

    # ---- the connection

    def connect(self) -> None:
        """Be connected from now on, whatever happens to connections."""
        self.wanted = True
        self._connect_soon(0)

    def disconnect(self) -> None:
        self.wanted = False
        self.drop()

    def drop(self) -> None:
        """Lose the connection; a running broker learns of it."""
        consumer = self.consumer
        if consumer is None:
            return
        consumer.connected = False
        self.on_disconnected(consumer)
        dispatcher = consumer.dispatcher
        self.kernel.after(0, dispatcher.process, dispatcher.remove_consumer, consumer)

    def on_disconnected(self, consumer: Consumer) -> None:
        """See `dispatcher.Receiver`."""
        if consumer is self.consumer:
            self.consumer = None
            self.left_over = list(self.unprocessed)[-20:]
            self.unprocessed = {}
            if self.wanted:
                low_ms, high_ms = _BACKOFF_MS
                self._connect_soon(self.kernel.random.randint(low_ms, high_ms))

    def _connect_soon(self, delay_ms: int) -> None:
        if self._connecting is None:
            self._connecting = self.kernel.after(delay_ms * NS_PER_MS, None, self._connect)

    def _connect(self) -> None:
        self._connecting = None
        if not self.wanted or self.consumer is not None:
            return
        dispatcher = self._find()
        if dispatcher is None:
            low_ms, high_ms = _BACKOFF_MS
            self._connect_soon(self.kernel.random.randint(low_ms, high_ms))
            return
        self.consumer = Consumer(self, dispatcher, self.permits)
        dispatcher.add_consumer(self.consumer)

    # ---- messages

    def on_message(self, delivery: Delivery) -> None:
        """See `dispatcher.Receiver`."""
        position = delivery.position
        cursor = delivery.consumer.dispatcher.cursor
        receipts = self.obligations.fates[position].receipts
        self.kernel.note(f"{self.name} gets {position}, receipt {receipts + 1}, resets {cursor.resets}")
        self.obligations.require_not_cancelled(position, cursor)
        if receipts:
            self.obligations.repeated(self._cause(delivery))
        self.obligations.received(position)
        self.unprocessed[position] = delivery
        if self.ack_after_ms is not None:
            low_ms, high_ms = self.ack_after_ms
            delay_ns = self.kernel.between_ns(low_ms * NS_PER_MS, high_ms * NS_PER_MS)
            self.kernel.after(delay_ns, None, self._acknowledge_if_held, delivery)

    def _cause(self, delivery: Delivery) -> Cause:
        """The reason why the message comes again. Raises Violation without one."""
        position = delivery.position
        cursor = delivery.consumer.dispatcher.cursor
        fate = self.obligations.fates[position]
        acknowledged = fate.acknowledged
        if fate.unanswered:
            return Cause.IN_FLIGHT
        if self.obligations.is_owed(position, cursor.resets):
            return Cause.RESET
        if self.obligations.owed_since(position, cursor.resets) is None:
            return Cause.OVERWRITTEN
        last = acknowledged[-1]
        if last.raced:
            return Cause.RACED
        if last.owner is cursor:
            if last.at_ns >= delivery.read_ns:
                return Cause.RACED
            if cursor.is_deleted(position) or not cursor.forgotten:
                raise Violation(f"{position} comes again though it was acknowledged at this very owner")
            return Cause.OVERWRITTEN
        if self._log.deliver_at_ms[position] == NO_DELAY:
            return Cause.PLAIN
        if delivery.known_acknowledged:  # whatever excuses it: by the daemon's answer it is not held
            raise Violation(f"{position} comes again though the daemon knows that it was acknowledged")
        return self._again_because(position) or Cause.UNPERSISTED

    def _acknowledge_if_held(self, delivery: Delivery) -> None:
        if self.unprocessed.get(delivery.position) is delivery:
            self.acknowledge(delivery.position)

    def acknowledge(self, position: Position) -> None:
        """The application has finished with a message."""
        delivery = self.unprocessed.pop(position, None)
        if delivery is None or self.consumer is None:
            return
        self._to_broker(self.consumer, position, late=False)

    def acknowledge_late(self, position: Position) -> None:
        """The application has finished with a message of an earlier connection."""
        if self.consumer is not None and position in self.left_over:
            self.left_over.remove(position)
            self._to_broker(self.consumer, position, late=True)

    def negative_acknowledge(self, position: Position) -> None:
        """The application wants the message again later."""
        if self.unprocessed.pop(position, None) is not None and self.consumer is not None:
            consumer = self.consumer
            self.kernel.after(
                self.kernel.between_ns(0, self._network_ns),
                consumer.dispatcher.process,
                consumer.dispatcher.negative_acknowledge,
                consumer,
                position,
            )

    def _to_broker(self, consumer: Consumer, position: Position, *, late: bool) -> None:
        delay_ns = self.kernel.between_ns(0, self._network_ns)
        self.kernel.after(delay_ns, consumer.dispatcher.process, self._taken, consumer, position, late)

    def _taken(self, consumer: Consumer, position: Position, late: bool) -> None:
        if not consumer.connected or consumer.dispatcher.cursor.closed:
            return
        cursor = consumer.dispatcher.cursor
        raced = late or position in consumer.dispatcher.redelivery
        self.kernel.note(f"{self.name} acknowledges {position}, resets {cursor.resets}")
        if consumer.dispatcher.acknowledge(consumer, position):
            self.obligations.acknowledge(
                position, cursor.resets, raced=raced, owner=cursor, at_ns=self.kernel.now_ns
            )
