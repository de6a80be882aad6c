"""Somebody at a daemon's socket who pauses a subscription, or resumes it, or cancels or moves its messages:
`tidegate pause`, `resume`, `cancel`, `reschedule`, `release`."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.sim.bookkeeper import Position, Subscription
from tests.sim.changed import Request
from tests.sim.kernel import Kernel, Process, Violation
from tests.sim.wire import Wire
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.api.changes import OUTCOMES
from tidegate.plugin.shared.moments import AT_ONCE_MS
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Query, Reply, json_body
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Hello, Message, Ping, Pong, Role, Welcome


class Asker(ABC):
    """One request over one connection. Implements `wire.ClientEnd`."""

    def __init__(self, kernel: Kernel, topic: str, subscription: Subscription) -> None:
        self.process = Process("operator")
        self.subscription = subscription
        self.over = False
        self._kernel = kernel
        self._topic = topic
        self._decoder = FrameDecoder()
        self._wire: Wire | None = None

    def begin(self, wire: Wire) -> None:
        """The connection is made."""
        self._wire = wire
        self._send(Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, "operator", "simulated"))

    @abstractmethod
    def _request(self) -> dict[str, Any]:
        """The query, but for the name of the subscription."""

    @abstractmethod
    def _on_answer(self, answer: dict[str, Any]) -> None:
        """The daemon's answer."""

    # ---- wire.ClientEnd

    def on_bytes(self, data: bytes) -> None:
        """See `wire.ClientEnd`."""
        for frame in self._decoder.feed(data):
            if not self.over:
                self._on_message(decode(frame), frame.seq)

    def on_lost(self) -> None:
        """See `wire.ClientEnd`."""
        self.over = True

    def _on_message(self, message: Message, seq: int) -> None:
        match message:
            case Welcome():
                self._ask()
            case Ping():
                self._send(Pong(), seq)
            case Reply():
                answer = json.loads(message.body)
                self._kernel.note(f"operator <- {answer}")
                self._on_answer(answer)
                self._end()
            case _:
                self._end()  # the daemon shuts down

    def _ask(self) -> None:
        name = {"topic": self._topic, "subscription": self.subscription.name}
        self._send(Query(json_body({**name, **self._request()})), 1)

    def _end(self) -> None:
        self.over = True
        if self._wire is not None:
            self._wire.close_client()

    def _send(self, message: Message, seq: int = 0) -> None:
        if self._wire is not None and not self.over:
            self._kernel.note(f"operator -> {message.type.name}")
            self._wire.write(encode(message, 0, seq))


class Operator(Asker):
    """Pauses or resumes. done: it is answered that the pace is in force."""

    def __init__(self, kernel: Kernel, topic: str, subscription: Subscription, *, pauses: bool) -> None:
        super().__init__(kernel, topic, subscription)
        self.pauses = pauses
        self.done = False

    def begin(self, wire: Wire) -> None:
        """From now on the pace is not known."""
        self.subscription.pace.asked(self._kernel.now_ns)
        super().begin(wire)

    def _request(self) -> dict[str, Any]:
        return {"what": "pace", "kind": "paused" if self.pauses else "none"}

    def _on_answer(self, answer: dict[str, Any]) -> None:
        self.done = bool(answer.get("done"))
        self.subscription.pace.answered(self._kernel.now_ns, done=self.done, pauses=self.pauses)


class Changer(Asker):
    """Cancels messages, moves them, or releases them. `on_done` hears of those that are done."""

    def __init__(
        self,
        kernel: Kernel,
        topic: str,
        subscription: Subscription,
        request: Request,
        on_done: Callable[[list[Position]], None],
    ) -> None:
        super().__init__(kernel, topic, subscription)
        self._on_done = on_done
        self._had_no_room = 0
        self.request = request

    def begin(self, wire: Wire) -> None:
        """From now on it is not known what holds."""
        self.subscription.changed.asked(self.request, self._kernel.now_ns)
        self._had_no_room = self.subscription.changed.no_room
        super().begin(wire)

    def _request(self) -> dict[str, Any]:
        positions = base64.b64encode(PositionSet.of(self.request.positions).serialize()).decode()
        if self.request.at_ms is None:
            return {"what": "cancel", "positions": positions}
        if self.request.at_ms == AT_ONCE_MS:
            return {"what": "release", "positions": positions}
        return {"what": "reschedule", "positions": positions, "at_ms": self.request.at_ms}

    def _on_answer(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            return  # perhaps after a part was done
        outcomes = dict.fromkeys(self.request.positions, "done")
        for outcome, ids in answer["ids"].items():
            outcomes.update((position_of(each), outcome) for each in ids)
        counts = Counter(outcomes.values())
        told = {name: answer[name] for name in OUTCOMES if answer[name]}
        if counts != told:
            raise Violation(f"the daemon names {dict(counts)}, and counts {told}")
        if "no_room" in answer and self.subscription.changed.no_room == self._had_no_room:
            raise Violation(f"the daemon says that a broker has no room, and none said so: {answer}")
        self.subscription.changed.answered(self.request, outcomes, self._kernel.now_ns)
        self._on_done([position for position, outcome in outcomes.items() if outcome == "done"])


def position_of(message_id: str) -> Position:
    """The position in a message id of the product's."""
    ledger_id, entry_id = message_id.split(":")[:2]
    return int(ledger_id), int(entry_id)
