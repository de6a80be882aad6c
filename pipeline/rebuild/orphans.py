"""Ledgers no longer needed: their subscription is gone, or its pointer names others.

They stay when a subscription is deleted while its daemon is away (index logs) or Pulsar asks no tracker
(moved messages' times), and when a broker is killed while making one. Each names its owner. Invariant: a
ledger counts as an orphan after two such looks, a while apart, with the pointer read after the list: a new
ledger is in no pointer for a moment.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_plus

from tidegate.index import UnreadableLogError
from tidegate.index.log import ABOUT, NO_LEDGER, About, Pointer
from tidegate.pipeline.errors import NoTopicError, OptionError, UnreachableError, WireError
from tidegate.pipeline.topic.access import check_no_password
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.plugin.daemon.glob import Glob
from tidegate.plugin.daemon.homes.broker_home import BOOKKEEPER
from tidegate.plugin.daemon.homes.object_stores import checked_url, missing_folder, open_objects
from tidegate.plugin.wire.client import ask_socket

GRACE_S = 5.0
INDEX_LOG, OVERRIDES = "index-log", "overrides"
_OVERRIDES_POINTER = "#pulsar.internal.tidegate.overrides"
_NAMED_OVERRIDES = re.compile(r"1;(\d{1,18}(?:,\d{1,18})*)", re.ASCII)
_LIFE, _LEDGER = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9]{20}")
_TIMEOUT_S = 60.0
_LIST_REPEATS, _LIST_PAUSE_S = 5, 0.5
_LENGTH_MAX = 0x7F
"""Longer ones take two bytes, the first of which is no UTF-8."""


class LogLedger(NamedTuple):
    """A ledger, its owner by its own metadata, and its kind: an index log, or moved messages' times."""

    home: str
    ledger_id: int
    topic: str
    subscription: str
    component: str = INDEX_LOG


class Ledgers(Protocol):
    """All ledgers in one home."""

    def list(self) -> Iterator[LogLedger]:
        """All of them. Raises UnreachableError."""
        ...

    def remove(self, ledger: LogLedger) -> None:
        """Delete one. Raises UnreachableError."""
        ...


class ObjectLedgers:
    """The ledgers in an object store. Raises OptionError for a senseless URL."""

    def __init__(self, url: str) -> None:
        try:
            self._url = checked_url(url)
        except ValueError as error:
            raise OptionError(f"--index-log is refused: {error}") from None
        if (folder := missing_folder(self._url)) is not None:
            raise OptionError(f"--index-log: there is no folder {folder}: is it mounted?")
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
                        continue  # its deletion is under way
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
    """The ledgers in BookKeeper, from the HTTP server of any bookie (``httpServerEnabled``).

    A bookie answers a list with 500 if a ledger is deleted meanwhile: what is read is asked for again.
    """

    def __init__(self, url: str, sleep: Callable[[float], None] = time.sleep) -> None:
        import httpx  # noqa: PLC0415 it takes its time

        check_no_password("--bookie-url", url)
        if not url.startswith(("http://", "https://")):
            raise OptionError(f"{url[:80]!r} is no URL of a bookie: write http://HOST:8000")
        self._url = f"{url.rstrip('/')}/api/v1/ledger"
        self._sleep = sleep
        self._error = httpx.HTTPError
        self._request = partial(httpx.request, timeout=_TIMEOUT_S, trust_env=False)

    def list(self) -> Iterator[LogLedger]:
        """See `Ledgers`."""
        found = self._ask("GET", "list", {"print_metadata": "true"})
        if not isinstance(found, dict):
            raise WireError(f"{self._url} does not answer as a bookie does")
        for ledger_id, metadata in found.items():
            custom = _custom_metadata(str(metadata))
            component = custom.get("component", "")
            if custom.get("application") != "tidegate" or component not in {INDEX_LOG, OVERRIDES}:
                continue
            topic = _topic_of(custom.get("pulsar/managed-ledger", ""))
            cursor = custom.get("pulsar/cursor")
            if topic is not None and cursor:
                yield LogLedger(BOOKKEEPER, int(ledger_id), topic, unquote_plus(cursor), component)

    def remove(self, ledger: LogLedger) -> None:
        """See `Ledgers`."""
        self._ask("DELETE", "delete", {"ledger_id": str(ledger.ledger_id)})

    def _ask(self, method: str, what: str, parameters: dict[str, str]) -> Any:
        try:
            answer = self._request(method, f"{self._url}/{what}", params=parameters)
            for _ in range(_LIST_REPEATS):
                if method != "GET" or answer.status_code != HTTPStatus.INTERNAL_SERVER_ERROR:
                    break
                self._sleep(_LIST_PAUSE_S)
                answer = self._request(method, f"{self._url}/{what}", params=parameters)
            answer.raise_for_status()
            return answer.json() if method == "GET" else None
        except self._error as error:
            raise UnreachableError(f"the bookie at {self._url} does not answer: {error}") from error
        except ValueError as error:
            raise WireError(f"{self._url} does not answer with JSON: is it a bookie?") from error


def _custom_metadata(metadata: str) -> dict[str, str]:
    """A ledger's custom metadata.

    A bookie serves its encoding, protobuf, as text: bytes that are not UTF-8 are lost, and with them each
    length above 127. Metadata with such a value count as unknown.
    """
    found = {}
    for at in re.finditer(r"\n(.)(?=([a-z/-]+)\x12(.))", metadata, re.DOTALL):
        name, size = at[2], ord(at[3])
        value = metadata[at.end(3) : at.end(3) + size]
        if ord(at[1]) == len(name) and size <= _LENGTH_MAX and len(value) == size:
            found[name] = value
    return found


def _topic_of(managed_ledger: str) -> str | None:
    """The topic of a managed ledger's name, ``tenant/namespace/persistent/name``."""
    parts = managed_ledger.split("/", 3)
    if len(parts) != 4 or parts[2] != "persistent":
        return None
    return f"persistent://{parts[0]}/{parts[1]}/{unquote_plus(parts[3])}"


class Named:
    """The needed ledgers, as far as known.

    Pulsar up to 4.2 reports a cursor's properties as of its topic's loading. So the admin API tells a
    subscription's existence, and its serving daemon the pointer of its index log. No daemon knows the pointer
    to moved messages' times. An old pointer is enough for ledgers older than its own: ids grow, and the
    pointer never goes back.

    Example: an old pointer names ledger 50. Ledger 40 is an orphan; a newer pointer may name 60, which counts
    as needed.
    """

    def __init__(self, admin: Admin, socket: Path) -> None:
        self._admin = admin
        status = ask_socket(socket, {"what": "status"})
        self._pointers = {
            (one["topic"], one["subscription"]): one["index_log"]["pointer"]
            for one in status["subscriptions"]
            if one["index_log"] is not None
        }
        self._there: dict[str, set[str]] = {}

    def needs(self, ledger: LogLedger) -> bool:
        """True if a ledger is, or may be, needed."""
        if ledger.topic not in self._there:
            try:
                there = self._admin.subscriptions(TopicName.parse(ledger.topic))
            except NoTopicError:
                there = set()
            self._there[ledger.topic] = there
        if ledger.subscription not in self._there[ledger.topic]:
            return False
        if ledger.component == OVERRIDES:
            return self._may_have_times(ledger)
        try:
            pointer = Pointer.parse(self._pointers.get((ledger.topic, ledger.subscription), ""))
        except UnreadableLogError:
            return True
        if pointer is None or pointer.ledger_id == NO_LEDGER:
            return True  # this daemon does not serve it, or is just making its first ledger
        return pointer.home == ledger.home and ledger.ledger_id in pointer.ledgers

    def _may_have_times(self, ledger: LogLedger) -> bool:
        try:
            properties = self._admin.subscription_properties(
                TopicName.parse(ledger.topic), ledger.subscription
            )
        except NoTopicError:
            return True  # it vanished just now
        named = _NAMED_OVERRIDES.fullmatch(str(properties.get(_OVERRIDES_POINTER, "")))
        if named is None:
            return True  # none was stored when the topic was loaded
        ledger_ids = [int(one) for one in named[1].split(",")]
        return ledger.ledger_id in ledger_ids or ledger.ledger_id > ledger_ids[0]


def find_orphans(
    named: Callable[[], Named],
    homes: Sequence[Ledgers],
    topic: TopicName,
    subscription: str,
    pause: Callable[[float], None],
) -> list[tuple[Ledgers, LogLedger]]:
    """The orphans of subscriptions whose topic and name match; both may contain ``*``.

    named: the ledgers needed now. It is called after the list is complete, and again a while later.
    """
    topics, subscriptions = Glob(str(topic)), Glob(subscription)
    found = [
        (home, one)
        for home in homes
        for one in list(home.list())
        if _is_topic(one.topic) and topics.matches(one.topic) and subscriptions.matches(one.subscription)
    ]
    for wait_s in (0.0, GRACE_S):
        if found:
            pause(wait_s)
            now = named()
            found = [each for each in found if not now.needs(each[1])]
    return found


def _is_topic(name: str) -> bool:
    try:
        TopicName.parse(name)
    except OptionError:
        return False
    return True
