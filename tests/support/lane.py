"""A test's work on the broker: its own topic, sending, receiving and judging.

A :class:`Lane` is one topic with its producers and consumers; the fixture closes them.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pulsar

from tests.support.admin import Admin, AdminError, SubscriptionStats
from tests.support.cluster import SUBSCRIBED, TrackerKind
from tests.support.inbox import (
    DELIVER_AT_MS,
    UID,
    Arrival,
    Inbox,
    Judge,
    Sent,
    ack_all,
    assert_exactly,
    assert_not_early,
)
from tests.support.waiting import wait_until

SHARED = pulsar.ConsumerType.Shared
KEY_SHARED = pulsar.ConsumerType.KeyShared
TICK_MS = 1000
LATER_MS = 7_000
"""The delay of messages not due before the test has done something else, even on a machine late by seconds;
the test waits for it in the end.
"""
MINUTES_10_MS = 600_000
YEARS_10_MS = 10 * 365 * 24 * 3_600_000
OURS = "pulsar_delayed_tidegate_"
"""The begin of the shim's metrics' names."""

_numbers = itertools.count(1)


def now_ms() -> int:
    """The wall clock shared by broker and consumers."""
    return time.time_ns() // 1_000_000


class Servers(Protocol):
    """A lane's needs of its broker or brokers."""

    @property
    def kind(self) -> TrackerKind:
        """The tracker that delays the messages."""
        ...

    @property
    def running(self) -> bool:
        """True if a broker is there."""
        ...

    @property
    def service_url(self) -> str:
        """The URL for clients."""
        ...

    @property
    def work_dir(self) -> Path:
        """The folder of everything written."""
        ...

    @property
    def client_log_path(self) -> Path:
        """The warnings of every client."""
        ...

    @property
    def admin(self) -> Admin:
        """The admin interface."""
        ...

    def client(self) -> AbstractContextManager[pulsar.Client]:
        """A new client, closed at the end."""
        ...


class Lane:
    """One topic with everything that a test opens on it."""

    def __init__(self, cluster: Servers, name: str, *, namespace: str = SUBSCRIBED) -> None:
        self.cluster = cluster
        self.admin = cluster.admin
        self.topic = f"{namespace}/{name}-{next(_numbers)}"
        self._stack = contextlib.ExitStack()
        self._client: pulsar.Client | None = None
        self._uids = itertools.count()

    @property
    def client(self) -> pulsar.Client:
        """The client of this lane; a new one after :meth:`disconnect`."""
        if self._client is None:
            self._client = self._stack.enter_context(self.cluster.client())
        return self._client

    def disconnect(self) -> None:
        """Close every producer and consumer together with their client."""
        self._client = None
        self._stack.close()

    def close(self) -> None:
        """Disconnect and delete the topic: a restarted broker then has few topics to open."""
        self.disconnect()
        if self.cluster.running:
            with contextlib.suppress(AdminError):
                self.admin.delete_topic(self.topic)

    # Receiving

    def subscribe(
        self,
        inbox: Inbox,
        judge: Judge = ack_all,
        *,
        name: str = "sub",
        kind: pulsar.ConsumerType = SHARED,
        topic: str | None = None,
        **options: Any,
    ) -> pulsar.Consumer:
        """A consumer that puts its messages into ``inbox``; a new subscription starts at the earliest."""
        subscribed = threading.Event()
        try:
            return self.client.subscribe(
                topic or self.topic,
                name,
                kind,
                message_listener=inbox.listener(judge, subscribed),
                initial_position=pulsar.InitialPosition.Earliest,
                **options,
            )
        finally:
            subscribed.set()

    def reserve(self, *names: str) -> None:
        """Make subscriptions without a consumer, for everything sent from now on."""
        for name in names or ("sub",):
            consumer = self.client.subscribe(
                self.topic, name, SHARED, initial_position=pulsar.InitialPosition.Earliest
            )
            consumer.close()

    # Sending

    def producer(self, **options: Any) -> pulsar.Producer:
        """A producer of single messages unless ``options`` say otherwise."""
        return self.client.create_producer(self.topic, block_if_queue_full=True, **options)

    def send(
        self,
        delivers_at_ms: Iterable[int | None],
        *,
        keys: Sequence[str] | None = None,
        producer: pulsar.Producer | None = None,
        payload: bytes = b"x",
    ) -> list[Sent]:
        """Publish one message for each time (None: a plain one), in order; returns once all are stored."""
        own = producer or self.producer()
        sent: list[Sent] = []
        failures: list[pulsar.Result] = []
        stored = threading.Semaphore(0)

        def on_stored(result: pulsar.Result, _: object) -> None:
            if result != pulsar.Result.Ok:
                failures.append(result)
            stored.release()

        for index, deliver_at_ms in enumerate(delivers_at_ms):
            one = Sent(f"{next(self._uids):06d}", deliver_at_ms, keys[index % len(keys)] if keys else None)
            properties = {UID: one.uid}
            if deliver_at_ms is not None:
                properties[DELIVER_AT_MS] = str(deliver_at_ms)
            own.send_async(
                payload, on_stored, properties=properties, partition_key=one.key, deliver_at=deliver_at_ms
            )
            sent.append(one)
        own.flush()
        for _ in sent:
            assert stored.acquire(timeout=60.0), "the broker did not confirm what was sent within 60 s"
        if producer is None:
            own.close()
        assert not failures, f"{len(failures)} of {len(sent)} were refused: {failures[0]}"
        return sent

    def send_in(self, *delays_ms: int | None, **options: Any) -> list[Sent]:
        """As :meth:`send`, with delays from one common now."""
        start_ms = now_ms()
        return self.send([None if delay is None else start_ms + delay for delay in delays_ms], **options)

    # Judging

    def stats(self, name: str = "sub") -> SubscriptionStats:
        return self.admin.subscription(self.topic, name)

    def metrics(self, prefix: str) -> dict[str, float]:
        """The subscription ``sub`` on the broker's Prometheus page; names without ``prefix``."""
        pattern = re.compile(
            rf"^{prefix}(\w+)\{{(?=[^}}]*{re.escape(self.topic)}\")"
            rf"(?=[^}}]*subscription=\"sub\")[^}}]*\}} (\S+)",
            re.M,
        )
        return {name: float(value) for name, value in pattern.findall(self.admin.metrics())}

    def wait_stats(
        self,
        accept: Callable[[SubscriptionStats], bool],
        what: str,
        *,
        name: str = "sub",
        timeout_s: float = 60.0,
    ) -> SubscriptionStats:
        """Wait until ``accept`` takes the subscription's stats."""
        seen: list[SubscriptionStats] = []

        def check() -> bool:
            seen[:] = [self.stats(name)]
            return accept(seen[0])

        try:
            wait_until(check, what, timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; stats: {seen}") from None
        return seen[0]

    def wait_delayed(self, number: int, *, name: str = "sub") -> None:
        """Wait until ``msgDelayed`` is ``number``."""
        self.wait_stats(lambda stats: stats.delayed == number, f"msgDelayed is {number}", name=name)

    def wait_read_ahead(self, at_least: int) -> None:
        """Wait until the tracker has taken so many entries read ahead."""
        wait_until(
            lambda: self.metrics(OURS).get("read_ahead_entries", 0.0) >= at_least,
            f"{at_least} entries were read ahead",
        )

    def wait_claimed(self) -> None:
        """Wait until the tracker of ``sub`` has claimed it and the daemon has answered OPEN."""
        wait_until(
            lambda: self.metrics(OURS).get("connected") == 1.0, "the tracker is connected to the daemon"
        )

    def wait_indexed(self, number: int) -> None:
        """Wait until ``number`` entries of ``sub`` are durable, and the tracker waits for no answer."""

        def indexed() -> bool:
            now = self.metrics(OURS)
            return (
                now.get("connected") == 1.0
                and now["pending_entries"] == 0.0
                and now["tracked_entries"] >= number
            )

        wait_until(indexed, f"the daemon has {number} entries")

    def wait_drained(self, *, name: str = "sub") -> None:
        """Wait until the subscription is empty: no backlog, nothing delayed or unacknowledged.

        The client silently drops a repeat of a message just acknowledged, which the broker counts as
        unacknowledged. Pulsar's in-memory tracker does repeat some: not for it.
        """
        strict = self.cluster.kind.strict
        self.wait_stats(
            lambda now: now.backlog == now.delayed == 0 and (now.unacknowledged == 0 or not strict),
            "the subscription is drained",
            name=name,
        )

    def not_early(self, arrivals: Iterable[Arrival]) -> None:
        """Nothing came early; Pulsar's own trackers may be early by their tick."""
        assert_not_early(arrivals, tolerance_ms=0.0 if self.cluster.kind.strict else TICK_MS)

    def finish(self, inbox: Inbox, sent: Iterable[Sent], *, name: str = "sub", times: int = 1) -> None:
        """All of ``sent`` comes exactly ``times`` times, none early, and the subscription is drained."""
        sent = list(sent)
        inbox.wait_for(sent, times=times)
        self.wait_drained(name=name)
        arrivals = inbox.arrivals
        assert_exactly(arrivals, sent, times=times)
        self.not_early(arrivals)

    def finish_partly(self, inbox: Inbox, sent: Iterable[Sent], *, left: int, name: str = "sub") -> None:
        """All of ``sent`` comes exactly once, none early; ``left`` others stay delayed."""
        sent = list(sent)
        inbox.wait_for(sent)
        self.wait_stats(
            lambda now: now.backlog == now.delayed == left, f"only {left} delayed ones are left", name=name
        )
        assert_exactly(inbox.arrivals, sent)
        self.not_early(inbox.arrivals)


@dataclass(frozen=True)
class Expiring:
    """A topic with a time to live of a second, and only 50 far delayed messages."""

    lane: Lane
    inbox: Inbox
