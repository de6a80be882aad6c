"""Entries of a ledger straight from its bookies, over sockets.

Invariants: every entry from first to last is passed on once, in order, its digest checked; the next bookie
that should have an entry is asked for one that the last lacks or has damaged; the reader fences, opens and
writes nothing. While it handles an answer, the next request is under way.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from tidegate.pipeline.errors import OptionError, TopicError, UnreachableError, WireError
from tidegate.pipeline.topic.bookie_frames import (
    Payloads,
    Response,
    Status,
    batch_read_request,
    frame_size,
    parse_response,
    payloads_of,
    read_request,
)
from tidegate.pipeline.topic.ranges import Ledger, Segment

TIMEOUT_S = 15.0
BATCH_ENTRIES = 20_000
BATCH_BYTES = 512 * 1024
_STRIPED_ENTRIES = 512
_RECEIVE_BUFFER_BYTES = 4 * 1024 * 1024


class MissingError(TopicError):
    """No bookie of the ledger has an entry that should be there; the ledger may have been deleted."""


class Batch(NamedTuple):
    """Entries ``first``, ``first + 1``, … as the managed ledger stored them."""

    first: int
    payloads: Payloads


class Bookie:
    """One connection."""

    def __init__(self, name: str, address: tuple[str, int], timeout_s: float) -> None:
        """Connect. Raises ``UnreachableError``."""
        self.name = name
        try:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        except OSError as error:
            raise UnreachableError(f"bookie {name} does not answer: {error.strerror or error}") from error

    def send(self, request: bytes) -> None:
        """Send a request. Raises ``UnreachableError``."""
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise UnreachableError(f"bookie {self.name}: {error.strerror or error}") from error

    def receive(self) -> Response:
        """The next answer. Raises ``UnreachableError`` and ``WireError``."""
        try:
            size = frame_size(self._exactly(4))
            return parse_response(bytes(self._exactly(size)))
        except TimeoutError as error:
            raise UnreachableError(f"bookie {self.name} does not answer in time") from error
        except OSError as error:
            raise UnreachableError(f"bookie {self.name}: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        # Grown as bytes arrive: a frame's claimed size is not allocated in advance.
        data = bytearray(min(size, _RECEIVE_BUFFER_BYTES))
        at = 0
        while at < size:
            if at == len(data):
                data.extend(bytes(min(size - at, len(data))))
            with memoryview(data) as room:
                count = self._socket.recv_into(room[at:])
            if count == 0:
                raise UnreachableError(f"bookie {self.name} closed the connection")
            at += count
        return data


class Bookies:
    """The bookies of a cluster, connected at first need; a context manager.

    addresses: the addresses of bookies whose id is no ``host:port`` reachable from here.
    """

    def __init__(self, addresses: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._addresses = dict(addresses or {})
        self._timeout_s = timeout_s
        self._connected: dict[str, Bookie] = {}
        self._away: dict[str, UnreachableError] = {}

    def __enter__(self) -> Self:
        """No connection is open yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        for one in self._connected.values():
            one.close()
        self._connected.clear()

    def entries(self, ledger: Ledger, first: int, last: int) -> Iterator[Batch]:
        """The entries first … last of a ledger, in batches.

        Raises ``UnreachableError`` if no bookie that should have an entry answers, ``MissingError`` if all
        lack it, ``WireError`` if all have it damaged.
        """
        for segment, begin, end in _segments(ledger, first, last):
            # Each bookie has every entry only if there are as many copies as bookies.
            if ledger.write_quorum >= len(segment.bookies):
                yield from self._in_batches(ledger, segment, begin, end)
            else:
                yield from self._striped(ledger, segment, begin, end)

    def _in_batches(self, ledger: Ledger, segment: Segment, first: int, last: int) -> Iterator[Batch]:
        # Readers of different places begin at different bookies.
        turn = (ledger.ledger_id + first // BATCH_ENTRIES) % len(segment.bookies)
        order = [*segment.bookies[turn:], *segment.bookies[:turn]]
        failures: dict[str, TopicError] = {}
        at = first
        while at <= last:
            name = next((one for one in order if one not in failures), None)
            if name is None:
                raise _joined(ledger, at, failures)
            try:
                for found in self._batches_of(name, ledger, at, last):
                    yield found
                    at = found.first + len(found.payloads)
                    failures.clear()
            except (UnreachableError, WireError, MissingError) as error:
                self._drop(name)
                failures[name] = error

    def _batches_of(self, name: str, ledger: Ledger, first: int, last: int) -> Iterator[Batch]:
        bookie = self._bookie(name)
        request_id = first
        bookie.send(_batch_request(ledger.ledger_id, first, last))
        while True:
            response = bookie.receive()
            if response.status != Status.OK:
                raise _refused(name, ledger, first, response)
            if (response.request_id, response.ledger_id) != (request_id, ledger.ledger_id):
                raise WireError(f"bookie {name} answers what was not asked")
            if not response.entries or len(response.entries) > last - first + 1:
                raise WireError(f"bookie {name} gives {len(response.entries)} entries")
            begin, first = first, first + len(response.entries)
            if first <= last:
                request_id = first
                bookie.send(_batch_request(ledger.ledger_id, first, last))
            yield Batch(begin, payloads_of(response, ledger.ledger_id, begin, ledger.digest or ""))
            if first > last:
                return

    def _striped(self, ledger: Ledger, segment: Segment, first: int, last: int) -> Iterator[Batch]:
        for begin in range(first, last + 1, _STRIPED_ENTRIES):
            yield self._window(ledger, segment, begin, min(last, begin + _STRIPED_ENTRIES - 1))

    def _window(self, ledger: Ledger, segment: Segment, first: int, last: int) -> Batch:
        wanted = range(first, last + 1)
        found: dict[int, bytes] = {}
        failures: dict[str, TopicError] = {}
        for copy in range(ledger.write_quorum):
            asked: dict[str, list[int]] = {}
            for entry_id in wanted:
                if entry_id not in found:
                    name = segment.bookies[(entry_id + copy) % len(segment.bookies)]
                    asked.setdefault(name, []).append(entry_id)
            # Ask all before the first answers, so that they work at the same time.
            under_way = [name for name in asked if self._ask(name, ledger, asked[name], failures)]
            for name in under_way:
                self._collect(name, ledger, set(asked[name]), found, failures)
        missing = [entry_id for entry_id in wanted if entry_id not in found]
        if missing:
            raise _joined(ledger, missing[0], failures)
        return Batch(first, Payloads.of([found[entry_id] for entry_id in wanted]))

    def _ask(self, name: str, ledger: Ledger, entry_ids: list[int], failures: dict[str, TopicError]) -> bool:
        try:
            self._bookie(name).send(
                b"".join(read_request(ledger.ledger_id, entry_id) for entry_id in entry_ids)
            )
        except UnreachableError as error:
            self._drop(name)
            failures[name] = error
            return False
        return True

    def _collect(
        self,
        name: str,
        ledger: Ledger,
        entry_ids: set[int],
        found: dict[int, bytes],
        failures: dict[str, TopicError],
    ) -> None:
        """The answers of one bookie, in any order."""
        try:
            bookie = self._bookie(name)
            for _ in range(len(entry_ids)):
                response = bookie.receive()
                if response.status != Status.OK:
                    failures[name] = _refused(name, ledger, response.entry_id, response)
                    continue
                if response.ledger_id != ledger.ledger_id or response.entry_id not in entry_ids:
                    raise WireError(f"bookie {name} answers what was not asked")
                found[response.entry_id] = payloads_of(
                    response, ledger.ledger_id, response.entry_id, ledger.digest or ""
                )[0]
        except (UnreachableError, WireError) as error:
            self._drop(name)
            failures[name] = error

    def _bookie(self, name: str) -> Bookie:
        if name in self._away:
            raise self._away[name]
        if name not in self._connected:
            try:
                self._connected[name] = Bookie(name, self._address(name), self._timeout_s)
            except UnreachableError as error:
                # A reader lives for a few seconds: a missing bookie is not tried again for each ledger.
                self._away[name] = error
                raise
        return self._connected[name]

    def _drop(self, name: str) -> None:
        """After a failure the connection may hold half an answer."""
        if (bookie := self._connected.pop(name, None)) is not None:
            with contextlib.suppress(OSError):
                bookie.close()

    def _address(self, name: str) -> tuple[str, int]:
        return parse_address(self._addresses.get(name, name))


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) from ``host:port``. Raises ``OptionError``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise OptionError(f"{text[:80]!r} is no address of a bookie: name it with bookies=ID=HOST:PORT")
    return host.strip("[]"), int(port)


def _segments(ledger: Ledger, first: int, last: int) -> Iterator[tuple[Segment, int, int]]:
    """(segment, first, last) for each segment with some of the entries."""
    if not ledger.segments or ledger.write_quorum < 1 or ledger.digest is None:
        raise UnreachableError(
            f"where ledger {ledger.ledger_id} is stored is not known: the admin API does not say, as of a "
            "ledger that BookKeeper has lost; read through the broker"
        )
    ends = [segment.first_entry - 1 for segment in ledger.segments[1:]] + [last]
    for segment, end in zip(ledger.segments, ends, strict=True):
        begin, stop = max(first, segment.first_entry), min(last, end)
        if begin <= stop:
            if not segment.bookies:
                raise WireError(f"ledger {ledger.ledger_id} has an empty ensemble")
            yield segment, begin, stop


def _batch_request(ledger_id: int, first: int, last: int) -> bytes:
    return batch_read_request(ledger_id, first, first, min(last - first + 1, BATCH_ENTRIES), BATCH_BYTES)


def _refused(name: str, ledger: Ledger, entry_id: int, response: Response) -> TopicError:
    where = f"{ledger.ledger_id}:{entry_id}"
    if response.status in (Status.NO_LEDGER, Status.NO_ENTRY):
        return MissingError(f"bookie {name} has no entry {where} ({response.reason})")
    return UnreachableError(f"bookie {name} does not give entry {where}: {response.reason}")


def _joined(ledger: Ledger, entry_id: int, failures: Mapping[str, TopicError]) -> TopicError:
    """One error for all bookies: missing only if each of them says so."""
    kinds = [type(one) for one in failures.values()]
    kind = next((one for one in (UnreachableError, WireError) if one in kinds), MissingError)
    reasons = "; ".join(str(one) for one in failures.values())
    return kind(f"entry {ledger.ledger_id}:{entry_id} cannot be read: {reasons}")
