"""A Shared subscription's dispatcher in one broker, after Pulsar 4.0.8's
PersistentDispatcherMultipleConsumers.

Its rules: the order of the calls to the tracker; one normal and one replay read at a time; a normal read
skips positions contained in the tracker or deleted in the cursor *when it begins*; due messages and
redeliveries go before it; with the last consumer gone all hand-outs are forgotten, with the next one the
cursor rewinds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.sim.bookkeeper import NO_DELAY, Position, TopicLog
from tests.sim.clocks import MachineClock
from tests.sim.cursor import Cursor
from tests.sim.kernel import Kernel, Process, Violation
from tests.sim.shim import Tracker


class Receiver(Protocol):
    """A client."""

    def on_message(self, delivery: Delivery) -> None:
        """A message has come."""
        ...

    def on_disconnected(self, consumer: Consumer) -> None:
        """The broker has closed the consumer, or is gone."""
        ...


class Consumer:
    """A client's consumer in the broker: its unacknowledged messages, and its permits."""

    __slots__ = ("connected", "dispatcher", "pending", "permits", "receiver")

    def __init__(self, receiver: Receiver, dispatcher: Dispatcher, permits: int) -> None:
        self.receiver = receiver
        self.dispatcher = dispatcher
        self.permits = permits
        self.pending: dict[Position, None] = {}
        self.connected = True

    @property
    def free(self) -> int:
        return self.permits - len(self.pending)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way to a consumer; `read_ns`: when its read began."""

    consumer: Consumer
    position: Position
    read_ns: int
    known_acknowledged: bool


@dataclass(frozen=True, slots=True)
class DispatcherOptions:
    """`read_batch`: entries of a read; `io_ns`: of a read; `network_ns`: to a client; `early_ns`: how long
    after the first consumer the shim has the tracker made at most, -1: never.
    """

    read_batch: int = 100
    io_ns: int = 1_000_000
    network_ns: int = 1_000_000
    early_ns: int = -1


class Dispatcher:
    """`make_tracker` is called when the first delayed message is read, or before that where `had_tracker`;
    `knows_acknowledged`, `judge_lateness` and `judge_time` only judge.
    """

    def __init__(
        self,
        kernel: Kernel,
        process: Process,
        clock: MachineClock,
        log: TopicLog,
        cursor: Cursor,
        options: DispatcherOptions,
        make_tracker: Callable[[], Tracker],
        had_tracker: Callable[[], bool],
        knows_acknowledged: Callable[[Position], bool],
        judge_lateness: Callable[[Position], None],
        judge_time: Callable[[Position], None],
    ) -> None:
        self._kernel = kernel
        self.process = process
        self._clock = clock
        self._log = log
        self._options = options
        self._make_tracker = make_tracker
        self._had_tracker = had_tracker
        self._knows_acknowledged = knows_acknowledged
        self._judge_lateness = judge_lateness
        self._judge_time = judge_time
        self.cursor = cursor
        self.tracker: Tracker | None = None
        self.consumers: list[Consumer] = []
        self.redelivery: set[Position] = set()
        self.settled_ns = kernel.now_ns
        """Since when, for the dispatcher, nothing but latencies delays a message."""
        self.alone_ns: list[int] = []
        """When the last consumer had gone."""
        self.closed = False
        self.fenced = False
        self._seen: list[Consumer] = []
        self._next_consumer = 0
        self._read_requested = False
        self._reading: int | None = None  # number of the pending normal read
        self._reads = 0
        self._waiting = False  # it found nothing and waits for a message
        self._replaying = False
        self._rewind_first = False
        self._replayed_before: set[Position] = set()  # plain ones read again by the rewind

    # ---- consumers

    def add_consumer(self, consumer: Consumer) -> None:
        if not self.consumers:
            if self._reading is not None or self._replaying:
                self._rewind_first = True
            else:
                self.cursor.rewind()
                self._rewind_first = False
            self.redelivery.clear()
            self._replayed_before.clear()
        self.unsettle()
        self.consumers.append(consumer)
        if self.tracker is None and self._options.early_ns >= 0 and self._had_tracker():
            wait_ns = self._kernel.between_ns(0, self._options.early_ns)
            self._kernel.after(wait_ns, self.process, self._make_tracker_early)
        self.read_more_soon()

    def _make_tracker_early(self) -> None:
        """The shim has shown it a delayed message that is none."""
        if self.tracker is None and not self.closed:
            self.tracker = self._make_tracker()

    def remove_consumer(self, consumer: Consumer) -> None:
        if consumer not in self.consumers:
            return
        consumer.connected = False
        self.unsettle()
        self.consumers.remove(consumer)
        if self.consumers:
            self.redelivery.update(
                position for position in consumer.pending if position > self.cursor.mark_delete
            )
            self.read_more_soon()
        else:
            self.alone_ns.append(self._kernel.now_ns)
            self._cancel_waiting_read()
            self.redelivery.clear()
        consumer.receiver.on_disconnected(consumer)

    def disconnect_all(self) -> None:
        """Close every consumer; clients return by themselves."""
        for consumer in list(self.consumers):
            self.remove_consumer(consumer)

    def replaced(self) -> bool:
        """True if none of the consumers seen at the last call with any is there, but others are."""
        if not self.consumers:
            return False
        former, self._seen = self._seen, list(self.consumers)
        return bool(former) and not any(consumer in self._seen for consumer in former)

    def negative_acknowledge(self, consumer: Consumer, position: Position) -> None:
        """A consumer gives a message back. A gone one, which has given back all, is ignored."""
        if consumer.connected and position in consumer.pending:
            self._give_back(consumer, position)
            if position > self.cursor.mark_delete:
                self.redelivery.add(position)
            self.read_more_soon()

    def acknowledge(self, consumer: Consumer, position: Position) -> bool:
        """A consumer acknowledges; whether the cursor took it."""
        self._give_back(consumer, position)
        taken = not self.cursor.closed
        self.cursor.acknowledge([position])
        self.read_more_soon()
        return taken

    def _give_back(self, consumer: Consumer, position: Position) -> None:
        if not self.has_free_permit:
            self.unsettle()
        consumer.pending.pop(position, None)

    @property
    def has_free_permit(self) -> bool:
        """True if some consumer takes another message."""
        return any(consumer.free > 0 for consumer in self.consumers)

    def unsettle(self) -> None:
        """Messages may have had to wait until now."""
        self.settled_ns = self._kernel.now_ns

    # ---- reading

    @property
    def waits_for_traffic(self) -> bool:
        """True if former consumers' messages come with the next message only.

        So Pulsar 4.0.8 does it if consumers come during a replay read for the former ones: it rewinds after a
        normal read, and that one waits for a message.
        """
        return self._waiting and self._rewind_first

    def published(self) -> None:
        """There are new messages."""
        if self._waiting:
            self._waiting = False
            self._begin_read()
        self.read_more_soon()

    def read_more_soon(self) -> None:
        """readMoreEntriesAsync."""
        if not self._read_requested:
            self._read_requested = True
            self._kernel.after(self._kernel.between_ns(0, 100_000), self.process, self._read_requested_now)

    def _read_requested_now(self) -> None:
        self._read_requested = False
        self._read_more()

    def _read_more(self) -> None:
        tracker, cursor = self.tracker, self.cursor
        if self.closed or cursor.closed:
            return
        if tracker is not None and tracker.should_pause():
            return
        mark_delete = cursor.mark_delete
        if self.redelivery:
            self.redelivery = {position for position in self.redelivery if position > mark_delete}
        for consumer in self.consumers:
            for position in [each for each in consumer.pending if each <= mark_delete]:
                self._give_back(consumer, position)
        if not self.has_free_permit:
            return
        if self._replaying:
            return
        wanted = self._options.read_batch
        if tracker is not None and tracker.has_due():
            self.redelivery.update(tracker.pop_due(wanted))
        replay = sorted(self.redelivery)[:wanted]
        if replay:
            self._replay(replay)
        elif self._reading is None:
            self._begin_read()

    def _replay(self, positions: list[Position]) -> None:
        cursor = self.cursor
        alive = [position for position in positions if not cursor.is_deleted(position)]
        self.redelivery.difference_update(set(positions).difference(alive))
        if not alive:
            self.read_more_soon()
            return
        self._replaying = True
        self._later(self._replayed, alive, self._kernel.now_ns)

    def _replayed(self, positions: list[Position], read_ns: int) -> None:
        self._replaying = False
        self._dispatch(positions, read_ns, replay=True)

    def _begin_read(self) -> None:
        """Take the next messages neither contained nor deleted; wait without any."""
        tracker, cursor, log = self.tracker, self.cursor, self._log
        self._reads += 1
        self._reading = self._reads
        found: list[Position] = []
        at = bisect_left(log.positions, cursor.read_position)
        positions = log.positions
        while at < len(positions) and len(found) < self._options.read_batch:
            position = positions[at]
            at += 1
            if not (tracker is not None and tracker.contains(position)) and not cursor.is_deleted(position):
                found.append(position)
        if at:
            last = positions[at - 1]
            cursor.read_position = max(cursor.read_position, (last[0], last[1] + 1))
        if found:
            self._later(self._was_read, self._reading, found, self._kernel.now_ns)
        else:
            self._waiting = True

    def _cancel_waiting_read(self) -> None:
        if self._waiting:
            self._waiting = False
            self._reading = None

    def _was_read(self, number: int, positions: list[Position], read_ns: int) -> None:
        if number != self._reading:
            return
        self._reading = None
        if self._rewind_first:
            self._rewind_first = False
            self.cursor.rewind()
            self.unsettle()
            self.read_more_soon()
            return
        self._dispatch(positions, read_ns, replay=False)

    # ---- sending

    def _dispatch(self, positions: list[Position], read_ns: int, *, replay: bool) -> None:
        """trySendMessagesToConsumers, then the next read."""
        if self.closed:
            return
        cursor = self.cursor
        for at, position in enumerate(positions):
            consumer = self._free_consumer()
            if consumer is None:
                if not self.consumers:
                    cursor.rewind()
                    return
                self.redelivery.update(each for each in positions[at:] if each > cursor.mark_delete)
                break
            if replay:
                self.redelivery.discard(position)
            if not self._is_delayed(position):
                self._send(consumer, position, read_ns)
                if replay and self._rewind_first and self._log.deliver_at_ms[position] == NO_DELAY:
                    self._replayed_before.add(position)
        self._read_more()

    def _free_consumer(self) -> Consumer | None:
        for _ in range(len(self.consumers)):
            self._next_consumer = (self._next_consumer + 1) % len(self.consumers)
            consumer = self.consumers[self._next_consumer]
            if consumer.free > 0:
                return consumer
        return None

    def _is_delayed(self, position: Position) -> bool:
        """trackDelayedDelivery."""
        deliver_at_ms = self._log.deliver_at_ms[position]
        if self.tracker is None:
            if deliver_at_ms == NO_DELAY:
                return False
            self.tracker = self._make_tracker()
        return self.tracker.add_message(position, deliver_at_ms)

    def _send(self, consumer: Consumer, position: Position, read_ns: int) -> None:
        self._judge_time(position)
        if position in self._replayed_before:
            # Pulsar 4.0.8 gives the present consumers the messages of a replay for former ones, and the
            # rewind's once more. The shim keeps delayed ones back.
            self._replayed_before.discard(position)
        elif any(position in each.pending for each in self.consumers):
            raise Violation(f"{position} is sent though a consumer has it")
        self._judge_lateness(position)
        consumer.pending[position] = None
        delivery = Delivery(consumer, position, read_ns, self._knows_acknowledged(position))
        self._kernel.after(
            self._kernel.between_ns(0, self._options.network_ns), None, self._arrive, consumer, delivery
        )

    @staticmethod
    def _arrive(consumer: Consumer, delivery: Delivery) -> None:
        if consumer.connected:
            consumer.receiver.on_message(delivery)

    # ---- the end

    def close(self) -> None:
        """The topic is unloaded: close the tracker, disconnect the consumers."""
        self.closed = True
        if self.tracker is not None:
            self.tracker.close()
        self.disconnect_all()

    def _later(self, call: Callable[..., None], *args: object) -> None:
        io_ns = self._options.io_ns
        self._kernel.after(self._kernel.between_ns(io_ns // 4, io_ns), self.process, call, *args)
