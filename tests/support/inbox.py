"""Messages received by consumers, stamped by the receiving process, beside those sent.

Invariants:

- an arrival is stamped in the client's listener thread, before anything else;
- nothing is acknowledged before ``subscribe`` has returned: until then the client (pulsar-client 3.13.0) may
  refuse it as if the consumer were closed, for good. The first may come so early when subscription and
  connection exist;
- ``deliver_at_ms`` travels in the message's properties: the Python client does not show the real field;
- nothing is compared with another machine's time: broker and consumer share one clock.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pulsar

UID = "uid"
DELIVER_AT_MS = "deliver_at_ms"


@dataclass(frozen=True)
class Sent:
    """One message as sent; ``deliver_at_ms`` is None for a plain one."""

    uid: str
    deliver_at_ms: int | None
    key: str | None = None


@dataclass(frozen=True)
class Arrival:
    """One delivery of a message to one consumer."""

    uid: str
    deliver_at_ms: int | None
    received_ns: int
    redelivery_count: int
    consumer: str
    key: str
    payload: bytes
    entry: tuple[int, int]

    @property
    def early_ms(self) -> float:
        """Milliseconds before its time at arrival; negative or 0 if not early."""
        return 0.0 if self.deliver_at_ms is None else self.deliver_at_ms - self.received_ns / 1e6

    @property
    def told(self) -> str:
        """The arrival in one line, for a failure's message."""
        return (
            f"{self.uid} at {self.entry[0]}:{self.entry[1]} {-self.early_ms:.1f} ms after it was due"
            f" to {self.consumer} with redelivery count {self.redelivery_count}"
        )


class Verdict(enum.Enum):
    """The consumer's reaction to a message."""

    ACK = enum.auto()
    NACK = enum.auto()
    KEEP = enum.auto()


Judge: TypeAlias = Callable[[Arrival], Verdict]


def ack_all(_: Arrival) -> Verdict:
    return Verdict.ACK


def keep_all(_: Arrival) -> Verdict:
    return Verdict.KEEP


def ack_even(arrival: Arrival) -> Verdict:
    """Acknowledge the even ones, keep the others: holes in the acknowledgements."""
    return Verdict.KEEP if int(arrival.uid) % 2 else Verdict.ACK


class Inbox:
    """Collects the arrivals of one or more consumers; for any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrivals: list[Arrival] = []
        self._acknowledged_ns: dict[str, int] = {}
        self._failure: BaseException | None = None

    def listener(
        self, judge: Judge, subscribed: threading.Event
    ) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
        """A message listener that stamps, waits for ``subscribed``, does as ``judge`` says, and records."""

        def receive(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            received_ns = time.time_ns()
            subscribed.wait()
            try:
                arrival = _arrival(consumer.consumer_name(), message, received_ns)
                verdict = judge(arrival)
                if verdict is Verdict.ACK:
                    consumer.acknowledge(message)
                elif verdict is Verdict.NACK:
                    consumer.negative_acknowledge(message)
            except Exception as error:
                if isinstance(error, pulsar.AlreadyClosed) and not consumer.is_connected():
                    # The test closed the consumer with a prefetched message on its way.
                    return
                # In the client's thread nobody would see it: the test raises it.
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._arrivals.append(arrival)
                if verdict is Verdict.ACK:
                    self._acknowledged_ns[arrival.uid] = time.time_ns()
                self._changed.notify_all()

        return receive

    @property
    def arrivals(self) -> list[Arrival]:
        """A copy of the arrivals so far, in order."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return list(self._arrivals)

    @property
    def uids(self) -> list[str]:
        """The arrivals' uids, in order."""
        return [arrival.uid for arrival in self.arrivals]

    @property
    def acknowledged_ns(self) -> dict[str, int]:
        """When each message was last acknowledged (uid -> wall clock, ns)."""
        with self._changed:
            return dict(self._acknowledged_ns)

    def wait_for(self, sent: Iterable[Sent], *, times: int = 1, timeout_s: float = 60.0) -> None:
        """Return once all of ``sent`` have come at least ``times`` times; fail naming the missing ones."""
        wanted = {one.uid for one in sent}
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._failure is not None:
                    raise self._failure
                counts = Counter(arrival.uid for arrival in self._arrivals)
                missing = sorted(uid for uid in wanted if counts[uid] < times)
                if not missing:
                    return
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(
                        f"{len(missing)} of {len(wanted)} messages did not come {times} time(s)"
                        f" within {timeout_s:.0f} s: {missing[:10]}"
                    )
                self._changed.wait(left_s)


def _arrival(consumer: str, message: pulsar.Message, received_ns: int) -> Arrival:
    properties = message.properties()
    deliver_at_ms = properties.get(DELIVER_AT_MS)
    message_id = message.message_id()
    return Arrival(
        uid=properties[UID],
        deliver_at_ms=None if deliver_at_ms is None else int(deliver_at_ms),
        received_ns=received_ns,
        redelivery_count=message.redelivery_count(),
        consumer=consumer,
        key=message.partition_key(),
        payload=message.data(),
        entry=(message_id.ledger_id(), message_id.entry_id()),
    )


def assert_exactly(arrivals: Sequence[Arrival], sent: Iterable[Sent], *, times: int = 1) -> None:
    """Every message of ``sent`` came exactly ``times`` times, and nothing else came."""
    expected = {one.uid: times for one in sent}
    counts = Counter(arrival.uid for arrival in arrivals)
    lost = sorted(uid for uid, number in expected.items() if counts[uid] < number)
    surplus = sorted(uid for uid, number in counts.items() if number > expected.get(uid, 0))
    assert not lost, f"{len(lost)} of {len(expected)} lost: {lost[:10]}"
    assert not surplus, f"{len(surplus)} came too often or unexpectedly: " + "; ".join(
        arrival.told for arrival in arrivals if arrival.uid in surplus[:4]
    )


def assert_not_early(arrivals: Iterable[Arrival], *, tolerance_ms: float = 0.0) -> None:
    """No delivery was before its time by more than ``tolerance_ms``."""
    early = sorted(((one.early_ms, one.uid) for one in arrivals if one.early_ms > tolerance_ms), reverse=True)
    assert not early, f"{len(early)} came early (ms, uid): {early[:10]}"
