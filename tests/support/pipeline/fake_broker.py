"""A broker that serves one topic from memory and can be told to misbehave, as no real one can be made to."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.support.pipeline.entries import entry
from tests.support.pipeline.loopback import LoopbackServer
from tidegate.pipeline.topic.broker_frames import FrameDecoder, encode

LEDGER = 5


def message(entry_id: int, payload: bytes | None = None, ledger_id: int = LEDGER) -> bytes:
    """A MESSAGE frame."""
    data = entry(f"entry {entry_id}".encode()) if payload is None else payload
    head = encode("message", consumer_id=1, message_id={"ledger_id": ledger_id, "entry_id": entry_id})
    return struct.pack(">I", len(head) - 4 + len(data)) + head[4:] + data


class FakeBroker(LoopbackServer):
    """Answers every connection; a context manager.

    answers: command -> frames, or a function of (broker, command, number of that command so far); others are
    answered as by a sound broker of the entries 0 … 9.
    """

    def __init__(self, **answers: Any) -> None:
        self.seen: list[tuple[str, Any]] = []
        self._came = threading.Condition()
        self._answers = answers
        super().__init__()

    @property
    def url(self) -> str:
        return f"pulsar://{self.address}"

    def names(self) -> list[str]:
        """The commands that came, in order."""
        return [name for name, _ in self.seen]

    def wait_for(self, name: str) -> Any:
        """The first command of this name; waits up to 60 s for one that its sender need not wait for."""
        with self._came:
            self._came.wait_for(lambda: name in self.names(), 60)
        assert name in self.names(), f"no {name}, only {self.names()}"
        return next(command for seen, command in self.seen if seen == name)

    def _serve(self, handler: socketserver.StreamRequestHandler) -> None:
        connection = handler.request
        decoder = FrameDecoder()
        while data := connection.recv(65536):
            for frame in decoder.feed(data):
                number = self.names().count(frame.name)
                with self._came:
                    self.seen.append((frame.name, frame.command))
                    self._came.notify_all()
                for piece in self._frames(frame.name, frame.command, number):
                    if piece is CLOSE:
                        return
                    connection.sendall(piece)

    def _frames(self, name: str, command: Any, number: int) -> Iterable[bytes]:
        answer = self._answers.get(name, _SOUND.get(name, []))
        found: Iterable[bytes] = answer(self, command, number) if callable(answer) else answer
        return found


CLOSE = b"close"
Sound = Callable[[FakeBroker, Any, int], list[bytes]]


def _lookup(broker: FakeBroker, command: Any, _: int) -> list[bytes]:
    return [
        encode("lookup_response", request_id=command.request_id, response=1, broker_service_url=broker.url)
    ]


def _subscribe(_: FakeBroker, command: Any, __: int) -> list[bytes]:
    return [encode("success", request_id=command.request_id)]


def _last(_: FakeBroker, command: Any, __: int) -> list[bytes]:
    last = {"ledger_id": LEDGER, "entry_id": 9}
    return [encode("get_last_message_id_response", request_id=command.request_id, last_message_id=last)]


def _flow(broker: FakeBroker, _: Any, __: int) -> list[bytes]:
    start = next(command for name, command in reversed(broker.seen) if name == "subscribe").start_message_id
    return [message(number) for number in range(start.entry_id, 10)]


_SOUND: dict[str, list[bytes] | Sound] = {
    "connect": [encode("connected", server_version="fake")],
    "lookup": _lookup,
    "subscribe": _subscribe,
    "get_last_message_id": _last,
    "flow": _flow,
}
