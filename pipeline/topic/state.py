"""The admin API's account of a topic, parsed: its ledgers, their places, and its cursors.

Pure. Invariant: input that Pulsar would not send is a ``WireError``, never a traceback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from tidegate.pipeline.errors import NoSubscriptionError, WireError
from tidegate.pipeline.topic.names import TopicName, cursor_name
from tidegate.pipeline.topic.ranges import Acknowledged, Ledger, Position, Segment

_SEAL = "#pulsar.internal.tidegate.generation"
_SIMPLE = re.compile(r"\b(writeQuorumSize|digestType)=(\w+)")
_ENSEMBLES = re.compile(r"\bensembles=\{(.*?)\}")
_ENSEMBLE = re.compile(r"(\d+)=\[([^\]]*)\]")


@dataclass(frozen=True)
class TopicState:
    """One topic or partition. ``last_confirmed``: the last entry confirmed as stored."""

    topic: TopicName
    ledgers: tuple[Ledger, ...]
    last_confirmed: Position
    cursors: dict[str, dict[str, Any]]

    @property
    def subscriptions(self) -> list[str]:
        """The names of durable subscriptions: a reader's cursor vanishes with it, and delays nothing."""
        return sorted(unquote_plus(name) for name, cursor in self.cursors.items() if not _is_readers(cursor))

    def acknowledged(self, subscription: str) -> Acknowledged:
        """The acknowledgements of a subscription. Raises ``NoSubscriptionError`` if it does not exist."""
        cursor = self.cursors.get(cursor_name(subscription))
        if cursor is None:
            raise NoSubscriptionError(
                f"{self.topic} has no subscription {subscription[:80]!r}: {self._others()}"
            )
        try:
            return Acknowledged.parse(cursor["markDeletePosition"], cursor["individuallyDeletedMessages"])
        except (KeyError, TypeError) as error:
            raise WireError(f"the cursor {subscription[:80]!r} of {self.topic} lacks {error}") from error

    def seal(self, subscription: str) -> int:
        """The random number that Tidegate has put into the cursor; 0 without one.

        Raises ``NoSubscriptionError``.
        """
        self.acknowledged(subscription)
        properties = self.cursors[cursor_name(subscription)].get("properties")
        found = properties.get(_SEAL) if isinstance(properties, dict) else None
        return found if isinstance(found, int) else 0

    def _others(self) -> str:
        known = self.subscriptions[:5]
        return f"it has {', '.join(name[:80] for name in known)}" if known else "it has none"


def _is_readers(cursor: dict[str, Any]) -> bool:
    """True for a reader's cursor: open from the beginning, and never stored."""
    return cursor.get("state") == "Open" and cursor.get("cursorLedger") == -1


def parse_state(topic: TopicName, document: dict[str, Any]) -> TopicState:
    """From ``internalStats?metadata=true``. Raises ``WireError``."""
    try:
        last = Position.parse(document["lastConfirmedEntry"])
        open_bytes = int(document.get("currentLedgerSize") or 0)
        ledgers = tuple(_ledger(one, last, open_bytes) for one in document["ledgers"])
        cursors = dict(document["cursors"])
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the internal stats of {topic} are not as Pulsar's: {error}") from error
    return TopicState(topic, tuple(sorted(ledgers, key=lambda one: one.ledger_id)), last, cursors)


def _ledger(document: dict[str, Any], last: Position, open_bytes: int) -> Ledger:
    ledger_id, entries = int(document["ledgerId"]), int(document["entries"])
    size_bytes = int(document.get("size") or 0)
    # The broker reports no entries of the open ledger: those confirmed are readable.
    if ledger_id == last.ledger_id:
        entries, size_bytes = last.entry_id + 1, size_bytes or open_bytes
    elif ledger_id > last.ledger_id:
        entries = 0
    metadata = str(document.get("metadata") or "")
    simple = dict(_SIMPLE.findall(metadata))
    return Ledger(
        ledger_id,
        entries,
        bool(document.get("offloaded")),
        simple.get("digestType"),
        int(simple.get("writeQuorumSize", 0)),
        _segments(metadata),
        size_bytes,
    )


def _segments(metadata: str) -> tuple[Segment, ...]:
    found = _ENSEMBLES.search(metadata)
    if found is None:
        return ()
    return tuple(
        Segment(int(first), tuple(bookie.strip() for bookie in bookies.split(",") if bookie.strip()))
        for first, bookies in _ENSEMBLE.findall(found[1])
    )
