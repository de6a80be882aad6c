"""Ledgers of index logs that nobody needs: of a subscription that is gone, or that its pointer does not name.

A daemon that was away when a subscription was deleted leaves them, and a broker that was killed while it made
a ledger. Each says itself whose it is. Invariant: a ledger counts as an orphan only if it does so twice, a
while apart, with the pointer read after the list was: one that is being made is in no pointer for a moment.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_plus

from tidegate.index import UnreadableLogError
from tidegate.index.log.object_home import ABOUT, About
from tidegate.index.log.pointer import Pointer
from tidegate.pipeline.errors import NoTopicError, OptionError, UnreachableError, WireError
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.daemon.broker_home import BOOKKEEPER
from tidegate.plugin.daemon.object_stores import checked_url, open_objects

POINTER = "#pulsar.internal.tidegate.log"
GRACE_S = 5.0
_LIFE, _LEDGER = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9]{20}")
_TIMEOUT_S = 60.0


class LogLedger(NamedTuple):
    """A ledger of an index log, and whose it says it is."""

    home: str
    ledger_id: int
    topic: str
    subscription: str


class Ledgers(Protocol):
    """All ledgers of index logs in one home."""

    def list(self) -> Iterator[LogLedger]:
        """They all. Raises UnreachableError."""
        ...

    def remove(self, ledger: LogLedger) -> None:
        """Delete one. Raises UnreachableError."""
        ...


class ObjectLedgers:
    """Those in a store of objects. Raises OptionError if its URL makes no sense."""

    def __init__(self, url: str) -> None:
        try:
            self._url = checked_url(url)
        except ValueError as error:
            raise OptionError(f"--index-log is refused: {error}") from None
        with self._telling():
            self._store = open_objects(self._url)
        self._folders: dict[LogLedger, str] = {}

    def list(self) -> Iterator[LogLedger]:
        """See `Ledgers`."""
        with self._telling():
            for life in filter(_LIFE.fullmatch, self._store.sizes("")):
                for number in filter(_LEDGER.fullmatch, self._store.sizes(life)):
                    folder = f"{life}/{number}"
                    try:
                        about = About.decode(self._store.read(f"{folder}/{ABOUT}"))
                    except FileNotFoundError:
                        continue  # it is being deleted
                    if about is not None:
                        ledger = LogLedger(self._url, int(number), *about.identity.name)
                        self._folders[ledger] = folder
                        yield ledger

    def remove(self, ledger: LogLedger) -> None:
        """See `Ledgers`."""
        with self._telling():
            self._store.remove(self._folders[ledger])

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnreachableError(f"{self._url} cannot be read: {error}") from error


class BookieLedgers:
    """Those in BookKeeper, as the HTTP server of any bookie tells (``httpServerEnabled``)."""

    def __init__(self, url: str) -> None:
        import httpx  # noqa: PLC0415 it takes its time

        if not url.startswith(("http://", "https://")):
            raise OptionError(f"{url[:80]!r} is no URL of a bookie: write http://HOST:8000")
        self._url = f"{url.rstrip('/')}/api/v1/ledger"
        self._error = httpx.HTTPError
        self._client = httpx.Client(timeout=_TIMEOUT_S, trust_env=False)

    def list(self) -> Iterator[LogLedger]:
        """See `Ledgers`."""
        found = self._ask("GET", "list", {"print_metadata": "true"})
        if not isinstance(found, dict):
            raise WireError(f"{self._url} does not answer as a bookie does")
        for ledger_id, metadata in found.items():
            custom = _custom_metadata(str(metadata))
            if custom.get("application") != "tidegate" or custom.get("component") != "index-log":
                continue
            topic = _topic_of(custom.get("pulsar/managed-ledger", ""))
            if topic is not None:
                subscription = unquote_plus(custom.get("pulsar/cursor", ""))
                yield LogLedger(BOOKKEEPER, int(ledger_id), topic, subscription)

    def remove(self, ledger: LogLedger) -> None:
        """See `Ledgers`."""
        self._ask("DELETE", "delete", {"ledger_id": str(ledger.ledger_id)})

    def _ask(self, method: str, what: str, parameters: dict[str, str]) -> Any:
        try:
            answer = self._client.request(method, f"{self._url}/{what}", params=parameters)
            answer.raise_for_status()
            return answer.json() if method == "GET" else None
        except self._error as error:
            raise UnreachableError(f"the bookie at {self._url} does not answer: {error}") from error
        except ValueError as error:
            raise WireError(f"{self._url} does not answer with JSON: is it a bookie?") from error


def _custom_metadata(metadata: str) -> dict[str, str]:
    """What a ledger was given as metadata, as BookKeeper prints it: ``customMetadata={name=base64:…, …}``."""
    printed = re.search(r"customMetadata=\{([^}]*)\}", metadata)
    found = {}
    for name, value in re.findall(r"([^=,\s]+)=base64:([A-Za-z0-9+/=]*)", printed[1] if printed else ""):
        with contextlib.suppress(ValueError):
            found[name] = base64.b64decode(value, validate=True).decode("utf-8")
    return found


def _topic_of(managed_ledger: str) -> str | None:
    """The topic of a managed ledger's name, ``tenant/namespace/persistent/name``."""
    parts = managed_ledger.split("/", 3)
    if len(parts) != 4 or parts[2] != "persistent":
        return None
    return f"persistent://{parts[0]}/{parts[1]}/{unquote_plus(parts[3])}"


def find_orphans(
    admin: Admin,
    homes: Sequence[Ledgers],
    topic: TopicName,
    subscription: str,
    pause: Callable[[float], None],
) -> list[tuple[Ledgers, LogLedger]]:
    """The orphans of subscriptions whose topic and name match; both may have ``*``."""

    def look(candidates: list[tuple[Ledgers, LogLedger]]) -> list[tuple[Ledgers, LogLedger]]:
        pointers: dict[str, dict[str, str]] = {}
        for _, one in candidates:
            if one.topic not in pointers:
                pointers[one.topic] = _pointers(admin, TopicName.parse(one.topic))
        return [each for each in candidates if not _is_named(each[1], pointers[each[1].topic])]

    matching = [
        (home, one)
        for home in homes
        for one in list(home.list())
        if _is_topic(one.topic)
        and fnmatchcase(one.topic, str(topic))
        and fnmatchcase(one.subscription, subscription)
    ]
    found = look(matching)
    if found:
        pause(GRACE_S)
        found = look(found)
    return found


def _is_topic(name: str) -> bool:
    try:
        TopicName.parse(name)
    except OptionError:
        return False
    return True


def _pointers(admin: Admin, topic: TopicName) -> dict[str, str]:
    """The pointers of a topic's subscriptions; none if it is gone."""
    try:
        of_subscriptions = admin.subscription_properties(topic)
    except NoTopicError:
        return {}
    return {name: properties.get(POINTER, "") for name, properties in of_subscriptions.items()}


def _is_named(ledger: LogLedger, pointers: dict[str, str]) -> bool:
    """Whether the pointer of its subscription names it, or cannot be understood."""
    try:
        pointer = Pointer.parse(pointers.get(ledger.subscription, ""))
    except UnreadableLogError:
        return True
    return pointer is not None and pointer.home == ledger.home and ledger.ledger_id in pointer.ledgers
