"""A check, as far as possible, that a daemon is the one used by the topic's broker.

Two signs, each known to both sides:

- the *seal*: the shim's random number in the cursor (`docs/decisions/acknowledgement-seal.md`); the daemon
  has it from the last OPEN, the admin API shows it. Different ones: two cursors, or a reset without this
  daemon.
- the broker's *name*: for its daemon its address, which a look-up of the topic also gives. A name chosen by
  the user says nothing.

Invariant: no question makes an index at the daemon. Doubt is no reason to refuse.
"""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Collection
from typing import NamedTuple

from tidegate.index import SubscriptionName
from tidegate.pipeline.errors import TopicError
from tidegate.pipeline.rebuild.options import RebuildOptions
from tidegate.pipeline.topic.admin import Admin
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.state import parse_state
from tidegate.plugin.wire.session import DaemonSession

_ADDRESS = re.compile(r".*:\d{1,5}")
_LOOKS = 10
_LOOK_S = 0.5
"""On a busy machine, a reset cursor has its new seal this much sooner than the daemon."""


class Serving(enum.Enum):
    """The meaning of the signs."""

    YES = enum.auto()
    UNKNOWN = enum.auto()
    NO = enum.auto()


class Told(NamedTuple):
    """The meaning of the signs, with a reason for the user; the reason is empty if all is well."""

    serving: Serving
    why: str = ""


class Servant:
    """The daemon of a session, for one index after another."""

    def __init__(self, session: DaemonSession, wanted: RebuildOptions) -> None:
        self._session = session
        self._wanted = wanted
        status = session.ask({"what": "status", "subscriptions_max": 0})
        self._brokers = [str(one["name"]) for one in status["brokers"]]
        self._owners: dict[str, frozenset[str]] = {}

    def serves(self, name: SubscriptionName) -> Told:
        """The signs for one subscription. Raises ``NoTopicError`` and ``NoSubscriptionError``."""
        by_seal = self._by_seal(name)
        if by_seal is Serving.NO:
            return Told(
                Serving.NO,
                f"the daemon on {self._wanted.socket} has an index of {name}, but of another cluster, or of "
                "before a reset that it has not heard of",
            )
        if not self._brokers:
            return Told(
                by_seal, f"no broker is connected to the daemon on {self._wanted.socket}: none is told yet"
            )
        by_name = judged_by_name(self._brokers, self._owner(name.topic))
        if by_name is not Serving.NO:
            return Told(by_name)
        broker = ", ".join(sorted(self._owner(name.topic)))
        why = f"the broker of {name.topic}, {broker}, is not connected to the daemon on {self._wanted.socket}"
        return Told(Serving.UNKNOWN if by_seal is Serving.YES else Serving.NO, why)

    def _by_seal(self, name: SubscriptionName) -> Serving:
        pause = threading.Event()
        found = Serving.UNKNOWN
        for look in range(_LOOKS):
            # Ask the daemon again first: it learns a new seal after the cursor.
            there = self._session.about(name).get("generation", 0)
            if not there:
                return Serving.UNKNOWN
            found = judged_by_seal(there, self._seal(name))
            if found is not Serving.NO or look == _LOOKS - 1:
                break
            pause.wait(_LOOK_S)
        return found

    def _seal(self, name: SubscriptionName) -> int:
        topic = TopicName.parse(name.topic)
        with Admin(self._wanted.admin_url, self._wanted.access) as admin:
            return parse_state(topic, admin.internal_stats(topic)).seal(name.subscription)

    def _owner(self, topic: str) -> frozenset[str]:
        if topic not in self._owners:
            with Admin(self._wanted.admin_url, self._wanted.access) as admin:
                try:
                    self._owners[topic] = admin.owner(TopicName.parse(topic))
                except TopicError:
                    # A user who may see ledgers may lack the permission to look a topic up.
                    self._owners[topic] = frozenset()
        return self._owners[topic]


def judged_by_seal(daemons: int, cursors: int) -> Serving:
    """By the seals of daemon and cursor, 0 for none. Pure."""
    if not daemons or not cursors:
        return Serving.UNKNOWN
    return Serving.YES if daemons == cursors else Serving.NO


def judged_by_name(connected: Collection[str], owner: Collection[str]) -> Serving:
    """By the names of the connected brokers, and the addresses of the topic's broker. Pure."""
    if set(connected) & set(owner):
        return Serving.YES
    if not owner or not all(_ADDRESS.fullmatch(name) for name in connected):
        return Serving.UNKNOWN
    return Serving.NO
