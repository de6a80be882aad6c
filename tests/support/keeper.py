"""A consumer that has messages in hand for as long as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pulsar

from tests.support.inbox import UID


class Keeper:
    """A consumer's listener that acknowledges what it is told to, and keeps the other messages for later."""

    def __init__(self, acknowledges: Callable[[int], bool]) -> None:
        self._acknowledges = acknowledges
        self._changed = threading.Condition()
        self.kept: dict[int, pulsar.Message] = {}

    def listener(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """Called by the client for each message."""
        uid = int(message.properties()[UID])
        if self._acknowledges(uid):
            consumer.acknowledge(message)
            return
        with self._changed:
            self.kept[uid] = message
            self._changed.notify_all()

    def wait_for(self, uids: set[int]) -> None:
        """Return once all of these are kept."""
        with self._changed:
            came = self._changed.wait_for(lambda: uids <= self.kept.keys(), timeout=60.0)
        assert came, f"{len(uids - self.kept.keys())} of {len(uids)} messages did not come within 60 s"

    def acknowledge(self, consumer: pulsar.Consumer, count: int | None = None) -> None:
        """Acknowledge the first ``count`` of what is kept, or all."""
        for uid in sorted(self.kept)[:count]:
            consumer.acknowledge(self.kept[uid])
