"""Changes of a cursor that are no reset: a subscription for each way, its type, and with or without a
consumer.

Every other message is acknowledged. Then something moves or changes the cursor. After the topic's end the
acknowledged messages must not come again, and the others beyond must.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import pulsar

from tests.support.inbox import Arrival, Inbox, Judge, Sent, Verdict, keep_all
from tests.support.lane import KEY_SHARED, MINUTES_10_MS, SHARED, Lane
from tests.support.waiting import wait_until

MESSAGES = 40
STORED_AFTER_S = 2.5
"""Pulsar writes a cursor once a second."""
WRITTEN_AFTER_S = 15.0
"""A standalone broker writes one once in ten seconds (managedLedgerDefaultMarkDeleteRateLimit)."""
_MOVED_OVER = 10
_GAP_S = 3.0
"""Between the messages to move over and the others, where their age or their ledger counts."""
_PAYLOAD = b"x" * 300
_QUOTA_BYTES = 8_000

TYPES = {
    "shared": SHARED,
    "key-shared": KEY_SHARED,
    "failover": pulsar.ConsumerType.Failover,
    "exclusive": pulsar.ConsumerType.Exclusive,
}


MarkDeletes: TypeAlias = dict[str, tuple[int, int]]


@dataclass
class Moved:
    """One subscription. `kind`: its type during the move; before that it is Shared, or Key_Shared."""

    move: str
    kind: str
    connected: bool
    before: Inbox = field(default_factory=Inbox)
    between: Inbox = field(default_factory=Inbox)
    after: Inbox = field(default_factory=Inbox)
    consumer: pulsar.Consumer | None = None

    @property
    def name(self) -> str:
        return f"{self.move}-{self.kind}-{'connected' if self.connected else 'away'}"

    @property
    def first_kind(self) -> pulsar.ConsumerType:
        """Its type for acknowledging."""
        return KEY_SHARED if self.kind == "key-shared" else SHARED


def every_other(arrival: Arrival) -> Verdict:
    """Acknowledge those with odd numbers."""
    return Verdict.ACK if int(arrival.uid) % 2 else Verdict.KEEP


class Moves:
    """One topic's subscriptions, all on the same messages."""

    def __init__(self, lane: Lane, subscriptions: list[Moved]) -> None:
        self.lane = lane
        self.subscriptions = subscriptions
        self.sent: list[Sent] = []
        self.parted_s = 0.0
        self._last: list[Sent] = []
        self.stood: dict[str, tuple[int, int]] = {}
        self.moved: dict[str, tuple[int, int]] = {}

    def _each(self) -> Iterator[tuple[Moved, pulsar.ConsumerType]]:
        for one in self.subscriptions:
            yield one, TYPES[one.kind]

    def _subscribe(self, one: Moved, inbox: Inbox, judge: Judge, kind: pulsar.ConsumerType) -> None:
        one.consumer = self.lane.subscribe(inbox, judge, name=one.name, kind=kind)

    @staticmethod
    def _close(one: Moved) -> None:
        if one.consumer is not None:
            with contextlib.suppress(pulsar.AlreadyClosed):
                one.consumer.close()
            one.consumer = None

    def acknowledge_every_other(self, *, parted: bool = False, other_ledger: bool = False) -> None:
        """Then each gets the type and the consumer for the move.

        `parted`: the messages to move over are older than the others; `other_ledger`: and in another ledger.
        """
        for one in self.subscriptions:
            self._subscribe(one, one.before, every_other, one.first_kind)
        self.sent = self._send(_MOVED_OVER + 1)
        if other_ledger:
            self.lane.admin.unload(self.lane.topic)
        if parted:
            time.sleep(_GAP_S)
        self.parted_s = time.time()
        self.sent += self._send(MESSAGES - len(self.sent))
        self.lane.send_in(MINUTES_10_MS, keys=["a"])
        for one in self.subscriptions:
            one.before.wait_for(self.sent)
        left = MESSAGES // 2 + 1
        for one in self.subscriptions:
            self.lane.wait_stats(
                lambda now: now.backlog == left, "every other is acknowledged", name=one.name
            )
        time.sleep(STORED_AFTER_S)
        for one, kind in self._each():
            self._close(one)
            if one.connected or kind != one.first_kind:
                self._subscribe(one, one.between, keep_all, kind)
        for one, kind in self._each():
            if one.connected or kind != one.first_kind:
                one.between.wait_for(self.sent[::2])
            if not one.connected and one.move != "cumulative":
                self._close(one)

    def _send(self, number: int) -> list[Sent]:
        return self.lane.send_in(*[200] * number, keys=["a", "b", "c"], payload=_PAYLOAD)

    def move(self, stood: MarkDeletes | None = None) -> None:
        """Do each one's change."""
        with self.moving(stood):
            for one in self.subscriptions:
                WAYS[one.move](self, one)

    @contextlib.contextmanager
    def moving(self, stood: MarkDeletes | None = None) -> Iterator[None]:
        """Note the cursors' positions, unless `stood` has them; at the end wait until all have moved."""
        self.stood = stood or self.mark_deletes()
        yield
        wait_until(self._are_moved, "all are moved")
        for one in self.subscriptions:
            if not one.connected:
                self._close(one)

    def _are_moved(self) -> bool:
        now = self.mark_deletes()
        return all(now[one.name] > self.stood[one.name] for one in self.subscriptions if one.move in FORWARD)

    def mark_deletes(self) -> MarkDeletes:
        cursors = self.lane.admin.internal_stats(self.lane.topic)["cursors"]
        split = {name: cursor["markDeletePosition"].split(":") for name, cursor in cursors.items()}
        return {name: (int(ledger), int(entry)) for name, (ledger, entry) in split.items()}

    def entry(self, number: int) -> tuple[int, int]:
        uid = self.sent[number].uid
        arrivals = self.subscriptions[0].before.arrivals
        return next(arrival.entry for arrival in arrivals if arrival.uid == uid)

    def settle(self) -> None:
        """Nothing moves them any more."""
        self.moved = self.mark_deletes()

    def come_back(self) -> None:
        """All are Shared again, or Key_Shared, and one last message shows that nothing else comes."""
        for one in self.subscriptions:
            self._subscribe(one, one.after, keep_all, one.first_kind)
        self._last = self.lane.send_in(None, keys=["a"])

    def leave(self) -> None:
        """All consumers go, and the topic's client with them."""
        for one in self.subscriptions:
            one.consumer = None
        self.lane.disconnect()

    def check(self, one: Moved) -> None:
        """No acknowledged message has come again, and all others beyond mark-delete have."""
        moved = self.moved[one.name]
        beyond = [each for number, each in enumerate(self.sent) if self.entry(number) > moved]
        left = [each for each in beyond if int(each.uid) % 2 == 0]
        one.after.wait_for([*left, *self._last], timeout_s=30.0)
        arrived = {int(uid) for uid in [*one.between.uids, *one.after.uids]}
        again = {number for number in arrived if number < MESSAGES and number % 2}
        assert not again, f"{len(again)} acknowledged messages of {len(beyond) - len(left)} came again"


# ---- the ways ---------------------------------------------------------------------------------------------


def nothing(_: Moves, __: Moved) -> None:
    """Only the topic ends."""


def skip(moves: Moves, one: Moved) -> None:
    """By the admin, whatever is acknowledged."""
    moves.lane.admin.skip(moves.lane.topic, one.name, _MOVED_OVER // 2)


def skip_all(moves: Moves, one: Moved) -> None:
    """By the admin, as a namespace's cleared backlog."""
    moves.lane.admin.clear_backlog(moves.lane.topic, one.name)


def expire_to_position(moves: Moves, one: Moved) -> None:
    """By the admin; keeps the properties, as a time to live does."""
    ledger_id, entry_id = moves.entry(_MOVED_OVER)
    moves.lane.admin.call(
        "POST",
        f"/persistent/{moves.lane.topic}/subscription/{one.name}/expireMessages",
        {"ledgerId": ledger_id, "entryId": entry_id, "partitionIndex": -1, "isExcluded": False},
    )


def expire_by_time(moves: Moves, one: Moved) -> None:
    """By the admin, as a time to live does.

    Pulsar refuses it for a connected subscription with a small backlog, unless its oldest is half as old
    again.
    """
    older_than_s = math.ceil(time.time() - moves.parted_s) + 1
    moves.lane.admin.expire(moves.lane.topic, one.name, older_than_s)


def replicated(moves: Moves, one: Moved) -> None:
    """By the admin: replicated state, a property beside the seal, and a skip.

    Snapshots need another cluster; news of one move the cursor as a skip does.
    """
    path = f"/persistent/{moves.lane.topic}/subscription/{one.name}/replicatedSubscriptionStatus"
    moves.lane.admin.call("POST", path, True)
    skip(moves, one)


def cumulative(moves: Moves, one: Moved) -> None:
    """By the consumer."""
    ledger_id, entry_id = moves.entry(_MOVED_OVER)
    assert one.consumer is not None
    one.consumer.acknowledge_cumulative(pulsar.MessageId(-1, ledger_id, entry_id, -1))


def put_properties(moves: Moves, one: Moved) -> None:
    """Of the subscription, by the admin."""
    moves.lane.admin.call(
        "PUT", f"/persistent/{moves.lane.topic}/subscription/{one.name}/properties", {"theirs": "1"}
    )


def change_type(moves: Moves, one: Moved) -> None:
    """There and back: another tracker, and one skip under each."""
    other = KEY_SHARED if one.first_kind == SHARED else SHARED
    for kind in (other, one.first_kind):
        moves._close(one)
        moves._subscribe(one, one.between, keep_all, kind)
        moves.lane.admin.skip(moves.lane.topic, one.name, 2)


def several(moves: Moves, one: Moved) -> None:
    """One right after the other."""
    expire_to_position(moves, one)
    for _ in range(3):
        moves.lane.admin.skip(moves.lane.topic, one.name, 1)


WAYS: dict[str, Callable[[Moves, Moved], None]] = {
    "none": nothing,
    "skip": skip,
    "skip-all": skip_all,
    "expire": expire_to_position,
    "expire-by-time": expire_by_time,
    "replicated": replicated,
    "cumulative": cumulative,
    "properties": put_properties,
    "type": change_type,
    "several": several,
    "quota": nothing,
    "quota-by-age": nothing,
    "truncate": nothing,
}
ON_TOPIC = frozenset({"quota", "quota-by-age", "truncate"})
"""Done to all subscriptions of a topic at once."""
FORWARD = WAYS.keys() - {"none", "properties"}
"""Those that move mark-delete."""


def every_subscription() -> list[Moved]:
    """A fresh one for each way, type, and with or without a consumer, except changes of a whole topic."""
    made: list[Moved] = []
    for move in sorted(WAYS.keys() - ON_TOPIC):
        for kind in TYPES:
            single = kind in ("failover", "exclusive")
            for connected in (True, False):
                if (move == "cumulative" and not single) or (move == "type" and (single or not connected)):
                    continue
                if move == "expire-by-time" and connected:
                    continue
                made.append(Moved(move, kind, connected))
    return made


def all_of_topic(move: str) -> list[Moved]:
    """A fresh subscription for each type, with and without a consumer."""
    return [Moved(move, kind, connected) for kind in TYPES for connected in (True, False)]


def evict_by_size(moves: Moves, namespace: str) -> None:
    """All subscriptions of the namespace's topic; the broker looks once a second."""
    stood = moves.mark_deletes()  # once there is a quota, they may have moved
    with _backlog_quota(
        moves, namespace, "destination_storage", {"limitSize": _QUOTA_BYTES, "limitTime": -1}
    ):
        moves.move(stood)


def evict_by_age(moves: Moves, namespace: str) -> None:
    """Evict the first ledger as a whole, and delete it."""
    admin, topic = moves.lane.admin, moves.lane.topic
    first, _ = moves.entry(0)
    stood = moves.mark_deletes()
    with _backlog_quota(moves, namespace, "message_age", {"limitSize": -1, "limitTime": 1}):
        moves.move(stood)

    def is_deleted() -> bool:
        admin.trim(topic)
        return first not in {one["ledgerId"] for one in admin.internal_stats(topic)["ledgers"]}

    wait_until(is_deleted, "the first ledger is deleted")


def truncate(moves: Moves) -> None:
    """By the admin: all cursors go to the end, and all ledgers are deleted."""
    with moves.moving():
        moves.lane.admin.call("DELETE", f"/persistent/{moves.lane.topic}/truncate")


@contextlib.contextmanager
def _backlog_quota(moves: Moves, namespace: str, of: str, limits: dict[str, int]) -> Iterator[None]:
    path = f"/namespaces/{namespace}/backlogQuota?backlogQuotaType={of}"
    moves.lane.admin.call("POST", path, {**limits, "policy": "consumer_backlog_eviction"})
    try:
        yield
    finally:
        moves.lane.admin.call("DELETE", path)
