"""A lasting conversation with a running daemon: questions, and entries for it to take in.

A separate thread reads answers and answers PING, so the connection, and the subscriptions taken with it, stay
while the owner is busy. Invariants: an answer goes to the question with its number; the end of the connection
wakes everyone who waits; at most ``WINDOW`` blocks are unanswered.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import os
import queue
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.index import FIRST_KEY, Entries, PositionSet, SubscriptionName, TidegateIndexError
from tidegate.index.format import decode_block
from tidegate.plugin.errors import DaemonAwayError, ErrorCode, ProtocolError, UserError
from tidegate.plugin.wire.codec import decode, encode
from tidegate.plugin.wire.control_messages import Ingest, Query, Reply, json_body
from tidegate.plugin.wire.frames import VERSION_MAX, VERSION_MIN, FrameDecoder
from tidegate.plugin.wire.messages import Error, Hello, Message, Ping, Pong, Role, Welcome

WINDOW = 4
ANSWER_SECONDS = 120.0  # a block may wait until the daemon has spilled its staging
_READ_BYTES = 256 * 1024
_KEY = ("after_ms", "after_ledger", "after_entry")


class DaemonSession:
    """One control connection; a context manager. One thread asks at a time."""

    def __init__(self, path: Path, timeout_s: float = ANSWER_SECONDS) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        self._ended: str | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._reader = threading.Thread(target=self._read, name="daemon-session", daemon=True)

    def __enter__(self) -> Self:
        """Connect. Raises ``UserError``."""
        try:
            self._connect()
        except UserError:
            self._socket.close()
            raise
        self._reader.start()
        return self

    def _connect(self) -> None:
        try:
            self._socket.connect(os.fspath(self._path))
            hello = Hello(VERSION_MIN, VERSION_MAX, Role.CONTROL, f"control-{os.getpid()}", "tidegate")
            self._socket.sendall(encode(hello))
        except PermissionError as error:
            raise UserError(f"no permission to talk to {self._path}: be the daemon's user") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise DaemonAwayError(
                f"no daemon answers on {self._path} ({reason}): "
                "start it with tidegate serve, or give its --socket"
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up; this frees the taken subscriptions."""
        if self._reader.ident is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._reader.join()
        self._socket.close()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a question. Raises ``UserError``."""
        return self._answer(self._send(Query(json_body(request))))

    def take_in(self, name: SubscriptionName) -> dict[str, Any]:
        """Take a subscription until this session ends. Raises ``UserError`` if another session has it."""
        return self.ask({"what": "take-in", "topic": name.topic, "subscription": name.subscription})

    def about(self, name: SubscriptionName) -> dict[str, Any]:
        """``known``, and of a known one ``generation``. Makes nothing. Raises ``UserError``."""
        return self.ask({"what": "index", "topic": name.topic, "subscription": name.subscription})

    def put(self, name: SubscriptionName, blocks: Iterable[bytes], *, disown: bool = False) -> Iterator[int]:
        """Put blocks in, or disown their entries; yields for each the count of new or removed entries."""
        waiting: deque[int] = deque()
        what = "disowned" if disown else "added"
        for block in blocks:
            waiting.append(self._send(Ingest(name.topic, name.subscription, block, disown=disown)))
            if len(waiting) >= WINDOW:
                yield int(self._answer(waiting.popleft())[what])
        while waiting:
            yield int(self._answer(waiting.popleft())[what])

    def positions(self, name: SubscriptionName) -> tuple[PositionSet, PositionSet]:
        """(held, known acknowledged) now. Raises ``UserError``."""
        number = self._send(
            Query(json_body({"what": "positions", "topic": name.topic, "subscription": name.subscription}))
        )
        found = {"held": PositionSet(), "acknowledged": PositionSet()}
        while True:
            answer = self._answer(number, keep=True)
            for what, positions in found.items():
                if what in answer:
                    positions.update(PositionSet.deserialize(base64.b64decode(answer[what])))
            if answer["last"]:
                del self._answers[number]
                return found["held"], found["acknowledged"]

    def entries(self, name: SubscriptionName) -> Iterator[Entries]:
        """All held entries in order, in parts. Raises ``UserError``."""
        after = dict(zip(_KEY, FIRST_KEY, strict=True))
        while True:
            answer = self.ask(
                {"what": "entries", "topic": name.topic, "subscription": name.subscription, **after}
            )
            if answer["entries"]:
                try:
                    yield decode_block(base64.b64decode(answer["block"]))
                except TidegateIndexError as error:
                    raise UserError(f"the daemon on {self._path} answers no block: {error}") from error
            if answer["last"]:
                return
            after = {one: answer[one] for one in _KEY}

    # ---- frames

    def _send(self, message: Message) -> int:
        number = next(self._numbers)
        self._answers[number] = queue.SimpleQueue()
        try:
            with self._lock:
                self._socket.sendall(encode(message, seq=number))
        except OSError as error:
            raise self._away() from error
        return number

    def _answer(self, number: int, *, keep: bool = False) -> dict[str, Any]:
        answers = self._answers[number]
        if self._ended is not None and answers.empty():
            raise self._away()
        try:
            answer = answers.get(timeout=self._timeout_s)
        except queue.Empty as error:
            raise DaemonAwayError(
                f"the daemon on {self._path} does not answer within {self._timeout_s:g} s"
            ) from error
        if answer is None:
            raise self._away()
        if not keep:
            del self._answers[number]
        if "error" in answer:
            raise UserError(f"the daemon refuses: {answer['error']}")
        return answer

    def _away(self) -> DaemonAwayError:
        return DaemonAwayError(f"the daemon on {self._path} hung up: {self._ended or 'it was killed'}")

    def _read(self) -> None:
        decoder = FrameDecoder()
        ended = "it closed the connection"
        try:
            while data := self._socket.recv(_READ_BYTES):
                for frame in decoder.feed(data):
                    message = decode(frame)
                    if isinstance(message, Error):
                        ended = message.message
                    self._on_message(message, frame.seq)
        except OSError as error:
            ended = error.strerror or str(error)
        except ProtocolError as error:
            ended = f"its answer is not this protocol: {error}"
        self._ended = ended
        for answers in list(self._answers.values()):
            answers.put(None)

    def _on_message(self, message: Message, seq: int) -> None:
        match message:
            case Reply():
                waiting = self._answers.get(seq)
                if waiting is not None:
                    waiting.put(message.answer())
            case Ping():
                with self._lock:
                    self._socket.sendall(encode(Pong(), seq=seq))
            case Welcome() | Pong() | Error():
                pass
            case _:
                raise ProtocolError(ErrorCode.MALFORMED, f"a {message.type.name} for a control client")
