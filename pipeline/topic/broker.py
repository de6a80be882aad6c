"""Entries of a topic through a broker: a reader without a cursor, on Pulsar's binary protocol.

The broker omits entries that no consumer gets: markers, messages of aborted transactions, everything from the
first open transaction on. A reader, no Shared subscription, gets delayed messages at once.

Invariants: entries come in the topic's order, each once, whatever reconnects happen; the start is inclusive;
a reader requests no more than it has room for.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from tidegate.pipeline.errors import OptionError, TopicError, UnreachableError, WireError
from tidegate.pipeline.topic.access import Access, check_no_password
from tidegate.pipeline.topic.broker_frames import (
    CLIENT_VERSION,
    PROTOCOL_VERSION,
    Frame,
    FrameDecoder,
    encode,
)
from tidegate.pipeline.topic.entry import Entry, parse_entry
from tidegate.pipeline.topic.ranges import Position

TIMEOUT_S = 30.0
PERMITS = 2_000
_HOPS_MAX = 20
_ATTEMPTS = 6
_PAUSE_S = 0.1
_RECEIVE_BYTES = 256 * 1024
_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_CONSUMER_ID = 1
_EXCLUSIVE = 0
_SHOWN = 200

_REDIRECT, _CONNECT = 0, 1
_NOT_THERE = {11: "there is no topic {topic}", 17: "{topic} is no name of a topic"}
_NOT_ALLOWED = {3: "the broker does not know who this is", 4: "no permission to read {topic}"}
_TRY_AGAIN = {1, 2, 6, 14}


class ServiceUrl(NamedTuple):
    """The address of a broker or a proxy."""

    tls: bool
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ServiceUrl:
        """From ``pulsar://host:port`` or ``pulsar+ssl://host:port``. Raises ``OptionError``.

        Of several hosts (``pulsar://a,b``) it takes the first.
        """
        check_no_password("a service URL", text)
        scheme, _, rest = text.partition("://")
        try:
            parts = urlsplit(f"{scheme}://{rest.split(',')[0]}")
            port = parts.port or _PORTS.get(scheme, 0)
        except ValueError:
            parts, port = urlsplit(""), 0
        if scheme not in _PORTS or not parts.hostname:
            raise OptionError(
                f"{text[:80]!r} is no service URL: write pulsar://HOST:6650 or pulsar+ssl://HOST:6651"
            )
        return cls(scheme == "pulsar+ssl", parts.hostname, port)

    def __str__(self) -> str:
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{self.host}:{self.port}"


class BrokerConnection:
    """One connection after its handshake. Answers pings and challenges by itself."""

    def __init__(self, url: ServiceUrl, access: Access, via: str = "") -> None:
        """Connect; ``via``: the broker behind a proxy. Raises ``TopicError``."""
        self.url = url
        self._access = access
        self._decoder = FrameDecoder()
        self._waiting: deque[Frame] = deque()
        self._request_id = 0
        self._socket = _opened(url, access)
        try:
            self._greet(via)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        """Already connected."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; the broker drops the consumer with it."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes. Raises ``UnreachableError``."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise UnreachableError(f"{self.url}: {error.strerror or error}") from error

    def next_request_id(self) -> int:
        """An id that no request of this connection has used."""
        self._request_id += 1
        return self._request_id

    def receive(self) -> Frame:
        """The next frame. Raises ``UnreachableError`` and ``WireError``."""
        while True:
            while not self._waiting:
                self._waiting.extend(self._decoder.feed(self._receive_bytes()))
            frame = self._waiting.popleft()
            if frame.name == "ping":
                self.send(encode("pong"))
            elif frame.name == "auth_challenge":
                self.send(
                    encode(
                        "auth_response",
                        client_version=CLIENT_VERSION,
                        protocol_version=PROTOCOL_VERSION,
                        response={"auth_method_name": "token", "auth_data": self._token()},
                    )
                )
            elif frame.name not in ("", "pong"):
                return frame

    def answer(self, request_id: int, name: str) -> Frame:
        """The answer to a request, including an ERROR. No other answer may be pending."""
        while True:
            frame = self.receive()
            if frame.name in (name, "error") and frame.command.request_id == request_id:
                return frame
            if frame.name in ("close_consumer", "topic_migrated"):
                raise _MovedError(f"a topic has left {self.url}")

    def _greet(self, via: str) -> None:
        token = self._access.token()
        fields: dict[str, object] = {
            "client_version": CLIENT_VERSION,
            "protocol_version": PROTOCOL_VERSION,
            "feature_flags": {"supports_auth_refresh": True},
        }
        if token is not None:
            fields |= {"auth_method_name": "token", "auth_data": token.encode()}
        if via:
            fields["proxy_to_broker_url"] = via
        self.send(encode("connect", **fields))
        frame = self.receive()
        if frame.name == "error":
            raise _refused(frame, f"{self.url}")
        if frame.name != "connected":
            raise WireError(f"{self.url} greets with {frame.name}: is it a Pulsar broker?")

    def _token(self) -> bytes:
        return (self._access.token() or "").encode()

    def _receive_bytes(self) -> bytes:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError as error:
            raise SilentError(f"{self.url} does not answer within {TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise UnreachableError(f"{self.url}: {error.strerror or error}") from error
        if not data:
            raise UnreachableError(f"{self.url} closed the connection")
        return data


class SilentError(UnreachableError):
    """A broker is connected and silent."""


class StalledError(UnreachableError):
    """A broker sends no more messages, though there are more."""


class TopicReader:
    """Reads one topic, or one partition of it. Has no connection between two calls."""

    def __init__(self, service_url: str, access: Access, topic: str) -> None:
        self._service_url = ServiceUrl.parse(service_url)
        self._access = access
        self._topic = topic

    def last_position(self) -> Position | None:
        """The last entry that a consumer can get now, None without one. Raises ``TopicError``."""
        failures = 0
        while True:
            try:
                with self._subscribed(None) as connection:
                    return self._last(connection)
            except (UnreachableError, _MovedError) as error:
                failures = _tolerated(failures, error)

    def entries(self, first: Position, last: Position) -> Iterator[tuple[int, Entry]]:
        """(ledger_id, entry) for each entry from ``first`` to ``last``, both inclusive, that consumers get.

        Raises ``TopicError``.
        """
        at, failures = first, 0
        while True:
            try:
                with self._subscribed(at) as connection:
                    end = self._last(connection)
                    if end is None or end < at:
                        return
                    for ledger_id, entry in self._received(connection):
                        position = Position(ledger_id, entry.entry_id)
                        if position > last:
                            return
                        if position >= at:
                            at, failures = Position(ledger_id, entry.entry_id + 1), 0
                            yield ledger_id, entry
                        if position >= min(last, end):
                            return
                    return
            except StalledError as error:
                # Only once more: a broker that waits for a ledger is silent for ever.
                failures = _tolerated(max(failures, _ATTEMPTS - 2), error)
            except (UnreachableError, _MovedError) as error:
                failures = _tolerated(failures, error)

    def _received(self, connection: BrokerConnection) -> Iterator[tuple[int, Entry]]:
        """The broker's frames, until the topic's end if it has been terminated."""
        connection.send(encode("flow", consumer_id=_CONSUMER_ID, message_permits=PERMITS))
        used, seen_s = 0, time.monotonic()
        while True:
            try:
                frame = connection.receive()
            except SilentError as error:
                raise self._stalled(connection) from error
            if frame.name in ("close_consumer", "topic_migrated"):
                raise _MovedError(f"{self._topic} has moved to another broker")
            if frame.name == "error":
                raise _refused(frame, self._topic)
            if frame.name == "reached_end_of_topic":
                return
            if frame.name != "message":
                # Pings keep a connection alive even when messages no longer come.
                if time.monotonic() - seen_s > TIMEOUT_S:
                    raise self._stalled(connection)
                continue
            message_id = frame.command.message_id
            entry = parse_entry(message_id.entry_id, frame.entry)
            yield message_id.ledger_id, entry
            seen_s = time.monotonic()
            used += max(entry.metadata.num_messages_in_batch, 1)
            if used >= PERMITS // 2:
                connection.send(encode("flow", consumer_id=_CONSUMER_ID, message_permits=used))
                used = 0

    def _stalled(self, connection: BrokerConnection) -> StalledError:
        return StalledError(
            f"{connection.url} sends no more messages of {self._topic}: its log says why; a ledger that "
            "BookKeeper has lost is passed over once autoSkipNonRecoverableData is set to true"
        )

    @contextlib.contextmanager
    def _subscribed(self, first: Position | None) -> Iterator[BrokerConnection]:
        """A connection to the topic's owner with a reader that begins at ``first``; at the end if None."""
        with self._owner() as connection:
            request_id = connection.next_request_id()
            start = {} if first is None else {"start_message_id": _message_id(first)}
            connection.send(
                encode(
                    "subscribe",
                    topic=self._topic,
                    subscription=f"tidegate-{secrets.token_hex(8)}",
                    sub_type=_EXCLUSIVE,
                    consumer_id=_CONSUMER_ID,
                    request_id=request_id,
                    durable=False,
                    read_compacted=False,
                    initial_position=0,
                    force_topic_creation=False,
                    **start,
                )
            )
            frame = connection.answer(request_id, "success")
            if frame.name == "error":
                raise _refused(frame, self._topic)
            yield connection

    def _last(self, connection: BrokerConnection) -> Position | None:
        request_id = connection.next_request_id()
        connection.send(encode("get_last_message_id", consumer_id=_CONSUMER_ID, request_id=request_id))
        frame = connection.answer(request_id, "get_last_message_id_response")
        if frame.name == "error":
            raise _refused(frame, self._topic)
        found = frame.command.last_message_id
        # As an unsigned number, -1 means no entry.
        if found.ledger_id >= 1 << 63 or found.entry_id >= 1 << 63:
            return None
        return Position(found.ledger_id, found.entry_id)

    def _owner(self) -> BrokerConnection:
        """A connection to the broker that serves the topic."""
        asked, authoritative = self._service_url, False
        for _ in range(_HOPS_MAX):
            with BrokerConnection(asked, self._access) as connection:
                request_id = connection.next_request_id()
                connection.send(
                    encode("lookup", topic=self._topic, request_id=request_id, authoritative=authoritative)
                )
                frame = connection.answer(request_id, "lookup_response")
            found = frame.command
            if frame.name == "error" or found.response not in (_REDIRECT, _CONNECT):
                raise _refused(frame, self._topic)
            url = found.broker_service_url_tls if asked.tls else found.broker_service_url
            if not url:
                kind = "TLS address" if asked.tls else "address without TLS"
                raise UnreachableError(f"{asked} names no {kind} of the broker that has {self._topic}")
            owner = ServiceUrl.parse(url)
            if found.response == _CONNECT:
                if found.proxy_through_service_url:
                    return BrokerConnection(self._service_url, self._access, via=f"{owner.host}:{owner.port}")
                return BrokerConnection(owner, self._access)
            asked, authoritative = owner, bool(found.authoritative)
        raise UnreachableError(f"the brokers send each other in circles for {self._topic}")


class _MovedError(Exception):
    """The topic was unloaded: its next owner continues."""


def _tolerated(failures: int, error: Exception) -> int:
    """One failure more, after a growing pause. Raises ``UnreachableError`` if it is one too many."""
    if failures + 1 >= _ATTEMPTS:
        raise UnreachableError(str(error)) from error
    time.sleep(_PAUSE_S * 2**failures)
    return failures + 1


def _message_id(position: Position) -> dict[str, int]:
    return {"ledger_id": max(position.ledger_id, 0), "entry_id": max(position.entry_id, 0)}


def _opened(url: ServiceUrl, access: Access) -> socket.socket:
    try:
        plain = socket.create_connection((url.host, url.port), TIMEOUT_S)
    except OSError as error:
        raise UnreachableError(f"no broker answers on {url}: {error.strerror or error}") from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return access.tls().wrap_socket(plain, server_hostname=url.host) if url.tls else plain
    except ssl.SSLCertVerificationError as error:
        plain.close()
        raise TopicError(
            f"the certificate of {url} is not trusted: {error.verify_message}; give tls_ca_file"
        ) from error
    except OSError as error:
        plain.close()
        raise UnreachableError(f"no TLS with {url}: {error.strerror or error}") from error
    except BaseException:
        plain.close()
        raise


def _refused(frame: Frame, topic: str) -> TopicError:
    """The error in an answer."""
    code, said = frame.command.error, " ".join(str(frame.command.message).split())
    said = "".join(one if one.isprintable() else "?" for one in said)[:_SHOWN]
    for known in (_NOT_THERE, _NOT_ALLOWED):
        if code in known:
            return TopicError(known[code].format(topic=topic) + (f" ({said})" if said else ""))
    if code in _TRY_AGAIN:
        return UnreachableError(f"the broker cannot serve {topic} now: {said or code}")
    return TopicError(f"the broker refuses {topic}: {said or code}")
