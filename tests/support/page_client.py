"""A client of the daemon that knows only docs/protocol.md, and no module of the project.

It writes every frame by hand and keeps all answers. A guess in it would be a fault of the page.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from pyroaring import BitMap

HELLO, WELCOME, ERROR, PING, PONG = 0x01, 0x02, 0x03, 0x04, 0x05
OPEN, HELD, ADD, DURABLE, DUE, CREDIT, ACK = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16
UNACK, MARK_DELETE, CLEAR, CLOSE, UNHELD = 0x17, 0x18, 0x19, 0x1A, 0x1B
QUERY, REPLY, INGEST = 0x20, 0x21, 0x22
LAST, NEAR, DISOWN = 1, 1, 1
BROKER, CONTROL = 1, 2
NOT_KNOWN = (-1, -1)
TIMEOUT_S = 60.0

Position = tuple[int, int]
Record = tuple[int, int, int]
"""ledger_id, entry_id, deliver_at_ms."""


def string(text: str) -> bytes:
    data = text.encode("utf-8")
    return struct.pack("<H", len(data)) + data


def positions(found: Iterable[Position]) -> bytes:
    ledgers: dict[int, BitMap] = {}
    for ledger_id, entry_id in found:
        ledgers.setdefault(ledger_id, BitMap()).add(entry_id)
    data = struct.pack("<I", len(ledgers))
    for ledger_id in sorted(ledgers):
        bitmap = ledgers[ledger_id].serialize()
        data += struct.pack("<qI", ledger_id, len(bitmap)) + bitmap
    return data


def read_positions(data: bytes, at: int = 0) -> tuple[set[Position], int]:
    """The positions, and their end."""
    found: set[Position] = set()
    (ledgers,) = struct.unpack_from("<I", data, at)
    at += 4
    for _ in range(ledgers):
        ledger_id, size = struct.unpack_from("<qI", data, at)
        at += 12
        found |= {(ledger_id, entry_id) for entry_id in BitMap.deserialize(data[at : at + size])}
        at += size
    return found, at


def block(entries: list[Record]) -> bytes:
    """A block as in docs/format.md, with fixed columns."""
    entries = sorted(entries, key=lambda each: (each[2], each[0], each[1]))
    columns = [[each[at] for each in entries] for at in (2, 0, 1)]
    data = struct.pack("<I", len(entries))
    for column in columns:
        base = min(column)
        data += struct.pack("<BBHIq", 0, 8, 0, 8 * len(column), base)
        data += b"".join(struct.pack("<Q", value - base) for value in column)
    times, ledgers = columns[0], columns[1]
    body = struct.pack("<qqqq", times[0], times[-1], min(ledgers), max(ledgers)) + data
    return b"TG\x01B" + struct.pack("<I", zlib.crc32(body, zlib.crc32(b"B", 1))) + body


class Stream:
    """A broker's state of one stream. held, acknowledged: by HELD, and by later changes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seq = 0
        self.durable = 0
        self.answered = False
        self.closed = False
        self.error: tuple[int, str] | None = None
        self.held: set[Position] = set()
        self.acknowledged: set[Position] = set()
        self.due: list[Record] = []
        self.unheld: set[Position] = set()
        self.set_bytes: list[int] = []
        """Of each set of each HELD frame."""


class PageClient:
    """A connection. Every wait ends after `TIMEOUT_S` with an error."""

    def __init__(self, path: Path, role: int = BROKER, name: str = "broker-1") -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect(str(path))
        self._data = b""
        self.streams: dict[int, Stream] = {}
        self.replies: dict[int, list[dict[str, Any]]] = {}
        self._questions = 0
        self.error: tuple[int, str] | None = None
        self.version = 0
        hello = b"TIDE" + struct.pack("<HHB", 3, 3, role) + string(name) + string("from the page")
        self.send(HELLO, 0, 0, hello)
        self.until(lambda: self.version == 3)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    # ---- frames

    def send(self, kind: int, stream: int, seq: int, payload: bytes = b"", flags: int = 0) -> None:
        body = struct.pack("<BBHIQ", kind, flags, 0, stream, seq) + payload
        self._socket.sendall(struct.pack("<II", 4 + len(body), zlib.crc32(body)) + body)

    def until(self, happened: Callable[[], bool]) -> None:
        """Take incoming frames until `happened`."""
        while not happened():
            self._take_frame()

    def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            more = self._socket.recv(1 << 18)
            if not more:
                raise ConnectionError(f"the daemon hung up: {self.error}")
            self._data += more
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def _take_frame(self) -> None:
        length, crc = struct.unpack("<II", self._take(8))
        body = self._take(length - 4)
        assert zlib.crc32(body) == crc
        kind, flags, reserved, number, seq = struct.unpack_from("<BBHIQ", body)
        assert reserved == 0
        payload = body[16:]
        stream = self.streams.get(number)
        if kind == WELCOME:
            (self.version,) = struct.unpack_from("<H", payload)
        elif kind == PING:
            self.send(PONG, 0, seq)
        elif kind == PONG:
            pass
        elif kind == ERROR:
            code, size = struct.unpack_from("<HH", payload)
            said = code, payload[4 : 4 + size].decode("utf-8")
            if stream is None:
                self.error = said
            else:
                stream.error = said
        elif kind == REPLY:
            self.replies.setdefault(seq, []).append(json.loads(payload))
        elif stream is not None:
            self._on_stream(stream, kind, flags, seq, payload)

    def _on_stream(self, stream: Stream, kind: int, flags: int, seq: int, payload: bytes) -> None:
        if kind == HELD:
            held, end = read_positions(payload)
            acknowledged, after = read_positions(payload, end)
            stream.set_bytes += [end, after - end]
            stream.held |= held
            stream.acknowledged |= acknowledged
            stream.answered = stream.answered or bool(flags & LAST)
        elif kind == DURABLE:
            assert stream.durable < seq <= stream.seq
            stream.durable = seq
        elif kind == DUE:
            (count,) = struct.unpack_from("<I", payload)
            stream.due += [struct.unpack_from("<qqq", payload, 4 + 24 * at) for at in range(count)]
        elif kind == UNHELD:
            gone, _ = read_positions(payload)
            stream.unheld |= gone
            stream.held -= gone
        elif kind == CLOSE:
            stream.closed = True
        else:
            raise AssertionError(f"type {kind:#x} is not for a broker")

    # ---- a broker's calls

    def begin_open(
        self,
        number: int,
        topic: str = "persistent://public/default/orders",
        *,
        incarnation: bytes = b"\x01" * 16,
        epoch: int = 1,
        claims: tuple[int, ...] = (),
        generation: int = 7,
        mark_delete: Position = NOT_KNOWN,
        end: Position = NOT_KNOWN,
        in_flight: Iterable[Position] = (),
        credit: int = 1_000,
    ) -> Stream:
        stream = self.streams[number] = Stream(number)
        payload = incarnation + struct.pack("<QQII", epoch, generation, 2_000, credit)
        payload += struct.pack("<qq", *mark_delete) + string(topic) + string("sub")
        payload += positions(in_flight) + string("") + string("")
        payload += struct.pack("<H", len(claims)) + b"".join(struct.pack("<I", claim) for claim in claims)
        self.send(OPEN, number, 0, payload + struct.pack("<qq", *end))
        return stream

    def open(self, number: int, *args: Any, **kwargs: Any) -> Stream:
        """OPEN, and all of its answer. A refusal is in its `error`."""
        stream = self.begin_open(number, *args, **kwargs)
        self.until(lambda: stream.answered or stream.error is not None)
        return stream

    def change(self, stream: Stream, kind: int, payload: bytes = b"", flags: int = 0) -> None:
        stream.seq += 1
        self.send(kind, stream.number, stream.seq, payload, flags)

    def add(self, stream: Stream, entries: list[Record], flags: int = 0) -> None:
        packed = b"".join(struct.pack("<qqq", *each) for each in entries)
        self.change(stream, ADD, struct.pack("<I", len(entries)) + packed, flags)

    def durable(self, stream: Stream) -> None:
        """Wait until everything sent on a stream is on disk."""
        self.until(lambda: stream.durable == stream.seq)

    # ---- a control client's calls

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._answered(QUERY, json.dumps(request).encode("utf-8"))

    def take_in(self, topic: str = "persistent://public/default/orders") -> dict[str, Any]:
        return self.ask({"what": "take-in", "topic": topic, "subscription": "sub"})

    def ingest(
        self, entries: list[Record], flags: int = 0, topic: str = "persistent://public/default/orders"
    ) -> dict[str, Any]:
        return self._answered(INGEST, string(topic) + string("sub") + block(entries), flags)

    def positions(self, topic: str = "persistent://public/default/orders") -> dict[str, Any]:
        """The answer to the query `positions`: `held`, `acknowledged` and `mark_delete`."""
        self._questions += 1
        question = {"what": "positions", "topic": topic, "subscription": "sub"}
        self.send(QUERY, 0, self._questions, json.dumps(question).encode("utf-8"))
        answers = self.replies.setdefault(self._questions, [])
        self.until(lambda: bool(answers) and answers[-1]["last"])
        told: dict[str, Any] = {"held": set(), "acknowledged": set()}
        for answer in answers:
            for what in ("held", "acknowledged"):
                if what in answer:
                    told[what] |= read_positions(base64.b64decode(answer[what]))[0]
        return {**told, "mark_delete": answers[-1]["mark_delete"]}

    def _answered(self, kind: int, payload: bytes, flags: int = 0) -> dict[str, Any]:
        self._questions += 1
        number = self._questions
        self.send(kind, 0, number, payload, flags)
        self.until(lambda: number in self.replies)
        return self.replies[number][0]
