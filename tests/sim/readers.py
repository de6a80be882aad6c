"""Somebody at a daemon's socket who lists waiting messages, page by page, and asks for the status:
`tidegate list`, `tidegate status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.sim.bookkeeper import Position, Subscription, key_of
from tests.sim.kernel import Kernel, Violation
from tests.sim.operator import Asker, position_of
from tests.sim.promises import Promises
from tests.sim.wire import Wire

PRODUCT = "simulated broker"


class Lister(Asker):
    """Lists a subscription's waiting messages in pages: in due order, none twice, with times that may hold,
    and every one that surely waits from the first page to the last. key: of the messages, if not "".
    """

    def __init__(
        self,
        kernel: Kernel,
        topic: str,
        subscription: Subscription,
        promises: Promises,
        limit: int,
        key: str,
    ) -> None:
        super().__init__(kernel, topic, subscription)
        self._promises = promises
        self._limit = limit
        self._key = key
        self._after: str | None = None
        self._last: tuple[int, Position] = (-1, (-1, -1))
        self._listed: set[Position] = set()
        self._waiting: Mapping[Position, int] = {}
        self._of: object = None

    def begin(self, wire: Wire) -> None:
        """From now on something surely waits."""
        self._of, self._waiting = self._promises.surely_waiting(self.subscription.name)
        super().begin(wire)

    def _request(self) -> dict[str, Any]:
        after = {} if self._after is None else {"after": self._after}
        key = {"key": self._key} if self._key else {}
        return {"what": "waiting", "limit": self._limit, **key, **after}

    def _on_answer(self, answer: dict[str, Any]) -> None:
        self._after = None
        if "error" in answer:
            return
        for entry in answer["entries"]:
            self._on_entry((entry["deliver_at_ms"], position_of(entry["message_id"])))
        self._after = answer["next"]
        if self._after is None:
            self._require_all()

    def _on_entry(self, entry: tuple[int, Position]) -> None:
        at_ms, position = entry
        if entry <= self._last or position in self._listed:
            raise Violation(f"the list has {entry} after {self._last}, or twice")
        if self._key not in ("", key_of(position)):
            raise Violation(f"the list has {position}, whose key is not {self._key}")
        self._last = entry
        self._listed.add(position)
        own_ms = self._promises.log.deliver_at_ms.get(position)
        times = self._promises.times_asked(self.subscription.name).get(position, ())
        if at_ms != own_ms and at_ms not in times and not self._promises.histories:
            raise Violation(f"the list says {at_ms} of {position}, it is {own_ms}")

    def _require_all(self) -> None:
        of, waiting = self._promises.surely_waiting(self.subscription.name)
        missing = (waiting.keys() & self._waiting.keys()) - self._listed
        if self._key:
            missing = {each for each in missing if key_of(each) == self._key}
        if of is self._of is not None and missing and not self._promises.disk.damaged:
            raise Violation(f"the list lacks {sorted(missing)[:8]}, which is held")

    def _end(self) -> None:
        if self._after is None:
            super()._end()
        else:
            self._ask()


class StatusReader(Asker):
    """Reads the status: it names the brokers by what they said of themselves."""

    def _request(self) -> dict[str, Any]:
        return {"what": "status", "topic": "*", "subscription": "*"}

    def _on_answer(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            return
        wrong = [each for each in answer["brokers"] if each["product"] != PRODUCT]
        if wrong:
            raise Violation(f"the status names brokers of another product: {wrong}")
        for each in answer["subscriptions"]:
            if not 0 <= each["in_flight"] <= each["held"] or each["staged"] < 0:
                raise Violation(f"the status counts wrongly: {each}")
