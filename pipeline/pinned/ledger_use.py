"""The use of a topic's ledgers: the entries that wait in each, and the space that few of them keep.

Pure. Pulsar deletes closed ledgers from the front, up to the first with an unacknowledged entry: one message
delayed by a month keeps that month's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from tidegate.index import PositionSet
from tidegate.pipeline.topic.ranges import Acknowledged, Ledger, acknowledged_positions

SHARE_MAX = 0.1
"""Up to this share of waiting entries a ledger counts as kept by few."""


@dataclass(frozen=True)
class Cursor:
    """A subscription: its acknowledgements, and the positions that its index holds, none without an index."""

    subscription: str
    acknowledged: Acknowledged
    held: PositionSet


@dataclass(frozen=True)
class LedgerUse:
    """One ledger.

    waiting: its entries that an index holds, of all subscriptions. other: the largest number of entries
    unacknowledged by a subscription and not held by its index. subscriptions: they keep it.
    """

    ledger_id: int
    entries: int
    size_bytes: int
    is_open: bool
    waiting: int
    other: int
    subscriptions: tuple[str, ...]

    @property
    def needed(self) -> bool:
        """True if Pulsar may not delete it."""
        return self.is_open or bool(self.subscriptions)

    @property
    def waiting_bytes(self) -> int:
        """An estimate: its waiting entries, each of its average size."""
        return self.size_bytes * self.waiting // max(1, self.entries)

    def kept_by_few(self, share_max: float) -> bool:
        """True if at most this share of its entries, all waiting, alone keeps it."""
        return (
            not self.is_open
            and bool(self.waiting)
            and not self.other
            and self.waiting <= share_max * self.entries
        )


@dataclass(frozen=True)
class Saving:
    """The space that a few waiting messages keep.

    ledgers: those at the front that Pulsar could delete without these messages. free_bytes: their size.
    waiting, waiting_bytes: these messages.
    """

    ledgers: int
    free_bytes: int
    waiting: int
    waiting_bytes: int


def uses(ledgers: Sequence[Ledger], open_ledger_id: int, cursors: Sequence[Cursor]) -> list[LedgerUse]:
    """The use of each ledger, in the topic's order."""
    return [_use(one, one.ledger_id >= open_ledger_id, cursors) for one in ledgers]


def _use(ledger: Ledger, is_open: bool, cursors: Sequence[Cursor]) -> LedgerUse:
    waiting, other, needing = PositionSet(), 0, []
    for cursor in cursors:
        gone = cursor.acknowledged.within(ledger.ledger_id, ledger.entries - 1)
        left = ledger.entries - sum(one.last - one.first + 1 for one in gone)
        if not left:
            continue
        needing.append(cursor.subscription)
        held = cursor.held.within(ledger.ledger_id, ledger.ledger_id)
        held = held.difference(acknowledged_positions(cursor.acknowledged, [held]))
        waiting.update(held)
        other = max(other, left - len(held))
    return LedgerUse(
        ledger.ledger_id,
        ledger.entries,
        ledger.size_bytes,
        is_open,
        len(waiting),
        other,
        tuple(needing),
    )


def saving(found: Sequence[LedgerUse], share_max: float) -> Saving:
    """The ledgers at the front that only a few waiting messages keep, up to the first of another kind.

    It omits those before the first needed one, which Pulsar keeps for other reasons.
    """
    ledgers = free_bytes = waiting = waiting_bytes = 0
    for one in dropwhile(lambda each: not each.needed, found):
        if one.needed and not one.kept_by_few(share_max):
            break
        ledgers += 1
        free_bytes += one.size_bytes
        waiting += one.waiting
        waiting_bytes += one.waiting_bytes
    return Saving(ledgers, free_bytes, waiting, waiting_bytes)
