"""Somebody at a daemon's socket who pauses a subscription, or resumes it: `tidegate pause` and `resume`."""

from __future__ import annotations

import json

from tests.sim.bookkeeper import Subscription
from tests.sim.kernel import Kernel, Process
from tests.sim.wire import Wire
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import (
    Hello,
    Message,
    Ping,
    Pong,
    Query,
    Reply,
    Role,
    Welcome,
    json_body,
)


class Operator:
    """One request over one connection. Implements `wire.ClientEnd`.

    done: it is answered that the pace is in force.
    """

    def __init__(self, kernel: Kernel, topic: str, subscription: Subscription, *, pauses: bool) -> None:
        self.process = Process("operator")
        self.subscription = subscription
        self.pauses = pauses
        self.over = False
        self.done = False
        self._kernel = kernel
        self._topic = topic
        self._decoder = FrameDecoder()
        self._wire: Wire | None = None

    def begin(self, wire: Wire) -> None:
        """The connection is made. From now on the pace is not known."""
        self._wire = wire
        self.subscription.pace.asked(self._kernel.now_ns)
        self._send(Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, "operator", "simulated"))

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
                kind = "paused" if self.pauses else "none"
                name = {"topic": self._topic, "subscription": self.subscription.name}
                self._send(Query(json_body({"what": "pace", **name, "kind": kind})), 1)
            case Ping():
                self._send(Pong(), seq)
            case Reply():
                answer = json.loads(message.body)
                self._kernel.note(f"operator <- {answer}")
                self.done = bool(answer.get("done"))
                self.subscription.pace.answered(self._kernel.now_ns, done=self.done, pauses=self.pauses)
                self._end()
            case _:
                self._end()  # the daemon shuts down

    def _end(self) -> None:
        self.over = True
        if self._wire is not None:
            self._wire.close_client()

    def _send(self, message: Message, seq: int = 0) -> None:
        if self._wire is not None and not self.over:
            self._kernel.note(f"operator -> {message.type.name}")
            self._wire.write(encode(message, 0, seq))
