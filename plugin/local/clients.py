"""Clients on the real pulsar-client that survive a kill -9 of their broker.

The library reconnects, but its pauses double (up to a minute) and cannot be set from Python. So a client is
dropped when its broker dies, and a new one opens when a broker is back, as a supervised application does. The
demo, the drills and the benches build their clients from this module. Invariants:

- the sender keeps a message until a broker has confirmed it: a new producer resends everything unconfirmed
  (the topic may then have it twice);
- every blocking call has its own thread, which ends soon after ``close``; no thread keeps a process alive.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pulsar

from tidegate.plugin.checks import NEVER

UNCONFIRMED_MAX = 5_000
"""Few enough that a kill -9 finds the sender at work, and so many that it waits for no answer."""
PRODUCER: Mapping[str, Any] = {
    "send_timeout_millis": 0,
    "max_pending_messages": 4 * UNCONFIRMED_MAX,
    # A delayed message is never batched; without batches a position is one message's.
    "batching_enabled": False,
}
"""A producer's settings, with awaited confirmations."""
_RECEIVE_MS = 250
_JOIN_TIMEOUT_S = 5.0


class Workers:
    """Threads that end with ``closed``. ``guard`` runs each thread's work, and may catch its exceptions."""

    def __init__(self, guard: Callable[[Callable[[], None]], None] = lambda work: work()) -> None:
        self.closed = threading.Event()
        self._guard = guard
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[..., None], *arguments: object) -> None:
        """Run it in a thread of its own."""
        # Daemon threads: an interrupted run ends even if the client's library hangs.
        thread = threading.Thread(
            target=self._guard, args=(functools.partial(work, *arguments),), daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        """Wait a short while for all threads; ``closed`` must be set."""
        deadline_s = time.monotonic() + _JOIN_TIMEOUT_S
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))

    @property
    def stuck(self) -> bool:
        """True if a thread is still inside the client's library; call it after ``join``."""
        return any(thread.is_alive() for thread in self._threads)


class Receipt(Protocol):
    """A listener for each message."""

    def __call__(self, message: pulsar.Message, received_at: int, acked_at: int) -> None:
        """Take a message acknowledged at ``acked_at``; ``NEVER`` if that failed."""
        ...


def receive(
    consumer: pulsar.Consumer,
    closed: threading.Event,
    now: Callable[[], int],
    receipt: Receipt,
    *,
    wait: Callable[[], object] = lambda: None,
    timeout_ms: int = _RECEIVE_MS,
) -> None:
    """Receive and acknowledge messages until the consumer or everything is closed; ``wait`` runs before each.

    Times are by ``now``, in its unit.
    """
    while not closed.is_set():
        wait()
        try:
            message = consumer.receive(timeout_millis=timeout_ms)
        except pulsar.Timeout:
            continue
        except pulsar.PulsarException:
            return
        received_at = now()
        acked_at = NEVER
        with contextlib.suppress(pulsar.PulsarException):
            consumer.acknowledge(message)
            acked_at = now()
        receipt(message, received_at, acked_at)


Answered = Callable[[object, object], None]
"""The library calls it with a send's result and the message's id."""


class Messages(Protocol):
    """The messages to send, by number."""

    def send(self, producer: pulsar.Producer, number: int, answered: Answered) -> None:
        """Send one; raises ``pulsar.PulsarException``."""
        ...

    def confirmed(self, number: int) -> None:
        """Note that a broker has stored the message. Runs on the library's own thread and must not raise."""
        ...

    def is_confirmed(self, number: int) -> bool:
        """True if a broker has stored it."""
        ...


class Sender:
    """Sends messages by number, each until confirmed. Any thread may call every method.

    sent: the last number sent, perhaps on a client that is gone.
    """

    def __init__(self, messages: Messages) -> None:
        self.sent = 0
        self._messages = messages
        self._producer: pulsar.Producer | None = None
        self._unconfirmed: set[int] = set()
        self._again: deque[int] = deque()
        self._generation = 0
        self._lock = threading.Lock()

    def begin(self, producer: pulsar.Producer) -> None:
        """Start with a producer, which first gets everything unconfirmed."""
        with self._lock:
            self._generation += 1
            self._again = deque(sorted(self._unconfirmed | set(self._again)))
            self._unconfirmed.clear()
            self._producer = producer

    def end(self) -> None:
        """Note that the producer is closed."""
        with self._lock:
            self._producer = None
            self._generation += 1

    @property
    def unconfirmed(self) -> int:
        """Messages, sent or to be resent, that no broker has confirmed."""
        with self._lock:
            return len(self._unconfirmed) + len(self._again)

    @property
    def is_connected(self) -> bool:
        """True with a producer connected to its broker."""
        with self._lock:
            producer = self._producer
        return producer is not None and bool(producer.is_connected())

    def send_up_to(self, until: int) -> None:
        """Send the messages to be resent, then new ones below ``until``, while there is room."""
        with self._lock:
            room = UNCONFIRMED_MAX - len(self._unconfirmed)
            again = [self._again.popleft() for _ in range(min(room, len(self._again)))]
        fresh = range(self.sent, min(until, self.sent + max(room - len(again), 0)))
        self.sent = max(self.sent, fresh.stop)
        for number in again:
            # The first attempt may have been confirmed.
            if not self._messages.is_confirmed(number):
                self._send(number)
        for number in fresh:
            self._send(number)

    def _send(self, number: int) -> None:
        with self._lock:
            producer, generation = self._producer, self._generation
            # Without a producer it waits for the next one, which resends everything unconfirmed.
            self._unconfirmed.add(number)
        if producer is None:
            return
        try:
            self._messages.send(producer, number, functools.partial(self._answered, generation, number))
        except pulsar.PulsarException as error:
            self._answered(generation, number, error, None)

    def _answered(self, generation: int, number: int, result: object, _message_id: object) -> None:
        if result == pulsar.Result.Ok:
            with self._lock:
                self._unconfirmed.discard(number)
            self._messages.confirmed(number)
            return
        with self._lock:
            if generation == self._generation and number in self._unconfirmed:
                self._unconfirmed.discard(number)
                self._again.append(number)
