"""State that brokers share and that survives them: the topic's log, the cursors' ledgers, the metadata store.

Reduced to the rules that decide who wins: a ledger refuses the writes of a writer fenced by a later owner's
opening; a metadata record is written by compare-and-set of its version. Nothing here is ever lost: bookies
and ZooKeeper are replicated, and this simulation's faults are the broker's and the daemon's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.sim.changed import Changed
from tests.sim.kernel import Kernel
from tests.sim.obligations import Obligations
from tests.sim.override_ledgers import OverrideLedgers

Position = tuple[int, int]

NO_DELAY = -1


def key_of(position: Position) -> str:
    """A message's key."""
    return "even" if position[1] % 2 == 0 else "odd"


@dataclass(frozen=True, slots=True)
class CursorRecord:
    """A cursor's persisted state: `acknowledged` above mark-delete, up to the limit of ranges.

    properties: those that go with mark-delete (kept by acknowledgements, wiped by a reset). resets: those
    behind this state; the simulation's own knowledge, not Pulsar's. beyond: acknowledged, but past the limit:
    not taken back by a reset.
    """

    mark_delete: Position
    acknowledged: frozenset[Position]
    properties: Mapping[str, int]
    resets: tuple[int, ...]
    beyond: frozenset[Position] = frozenset()

    def has(self, position: Position) -> bool:
        """True if the position is acknowledged in the persisted state."""
        return position <= self.mark_delete or position in self.acknowledged


class CursorLedger:
    """A ledger for a cursor's records; only the last one is ever read."""

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.last: CursorRecord | None = None
        self.writer: object = None

    def append(self, writer: object, record: CursorRecord) -> bool:
        """True if it was written; False if the writer was fenced."""
        if writer is not self.writer:
            return False
        self.last = record
        return True

    def fence(self) -> None:
        """Open for recovery: nobody writes to it any more."""
        self.writer = None


@dataclass(slots=True)
class CursorInfo:
    """A cursor's record in the metadata store. Its position is in the ledger if it names one, else here."""

    version: int
    ledger: CursorLedger | None
    record: CursorRecord
    cursor_properties: Mapping[str, str]

    def latest(self) -> CursorRecord:
        """The state for the cursor's next opener."""
        return self.record if self.ledger is None or self.ledger.last is None else self.ledger.last

    def copied(self) -> CursorInfo:
        """An independent copy, with its own ledger that nobody writes to."""
        ledger = None
        if self.ledger is not None:
            ledger = CursorLedger(self.ledger.ledger_id)
            ledger.last = self.ledger.last
        return CursorInfo(self.version, ledger, self.record, dict(self.cursor_properties))


class BadVersionError(Exception):
    """The metadata record has been written since it was read."""


@dataclass
class Subscription:
    """A subscription, whoever serves it. `info` is None after its deletion; a consumer that comes after
    `gone_until_ns` makes it again, at the message that `initial` names in thousandths of the topic.
    """

    name: str
    info: CursorInfo | None
    obligations: Obligations
    initial: int = 0
    gone_until_ns: int = 0
    last_version: int = 0
    forward: ForwardMove | None = None
    pace: Pace = field(default_factory=lambda: Pace())  # noqa: PLW0108 made below
    changed: Changed = field(init=False)

    def __post_init__(self) -> None:
        self.changed = Changed(self.obligations)


@dataclass(slots=True)
class Pace:
    """The knowledge of a subscription's pause. `paused`: surely nothing leaves for the first time.
    `may_be_paused`: it may have to be resumed. `unanswered`: requests that may take effect at any time;
    `side_by_side`: of two at once, each on its own connection, either may be the last. `sent`: those that
    left at least once. `changed_ns`: time of the last request or answer.
    """

    paused: bool = False
    may_be_paused: bool = False
    unanswered: int = 0
    side_by_side: bool = False
    sent: set[Position] = field(default_factory=set)
    changed_ns: int = 0

    def asked(self, now_ns: int) -> None:
        """A request for another: it may be in force before the answer."""
        self.paused, self.may_be_paused = False, True
        self.side_by_side = self.unanswered > 0
        self.unanswered += 1
        self.changed_ns = now_ns

    def answered(self, now_ns: int, *, done: bool, pauses: bool) -> None:
        """The request is over; `done`: it is in force, and stored."""
        self.unanswered -= 1
        self.changed_ns = now_ns
        if done and not self.unanswered and not self.side_by_side:
            self.paused = self.may_be_paused = pauses

    def forget(self, *, may_be_paused: bool) -> None:
        """Another life of the subscription, or an earlier state of Pulsar."""
        self.paused, self.may_be_paused = False, may_be_paused or self.may_be_paused
        self.sent.clear()


@dataclass(slots=True)
class ForwardMove:
    """The last move of mark-delete that has taken the seal and no acknowledgement beyond, or the last
    repeated reset; the simulation's own knowledge. `resets`: those requested before. `looks`: the shim's
    looks since.
    """

    resets: int
    looks: int = 0


@dataclass(slots=True)
class Message:
    """A message in the topic. `deliver_at_ms` is NO_DELAY for a plain one."""

    position: Position
    deliver_at_ms: int


@dataclass
class TopicLog:
    """The topic's messages, in order. Ledgers are rolled over when an owner opens the topic, and at will."""

    ledger_id: int
    next_entry: int = 0
    messages: list[Message] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    deliver_at_ms: dict[Position, int] = field(default_factory=dict)

    def append(self, deliver_at_ms: int) -> Position:
        position = (self.ledger_id, self.next_entry)
        self.next_entry += 1
        self.messages.append(Message(position, deliver_at_ms))
        self.positions.append(position)
        self.deliver_at_ms[position] = deliver_at_ms
        return position

    def copied(self) -> TopicLog:
        times = dict(self.deliver_at_ms)
        return TopicLog(self.ledger_id, self.next_entry, list(self.messages), list(self.positions), times)

    def put_back(self, former: TopicLog) -> None:
        """Return to a copy; the next messages get ids from there on."""
        self.ledger_id, self.next_entry = former.ledger_id, former.next_entry
        self.messages = list(former.messages)
        self.positions = list(former.positions)
        self.deliver_at_ms = dict(former.deliver_at_ms)

    def roll_over(self, skipped_ids: int) -> None:
        """Begin a ledger, unless the last one is empty."""
        if self.next_entry:
            self.ledger_id += 1 + skipped_ids
            self.next_entry = 0

    def at_or_after(self, position: Position) -> int:
        """Index of the first message at the position or after it."""
        return bisect_left(self.positions, position)

    def after(self, position: Position) -> int:
        """Index of the first message after the position."""
        return bisect_right(self.positions, position)

    def before(self, position: Position) -> Position:
        """The mark-delete position before reading from this one on."""
        at = self.at_or_after(position)
        if at:
            return self.positions[at - 1]
        return (self.positions[0][0] if self.positions else self.ledger_id, -1)

    @property
    def last(self) -> Position:
        """The last confirmed position: on loading a topic, Pulsar ignores empty ledgers."""
        return self.positions[-1] if self.positions else (self.ledger_id, -1)

    @property
    def end(self) -> Position:
        """The next message's position."""
        return (self.ledger_id, self.next_entry)


class BookKeeper:
    """All ledgers and the metadata store."""

    def __init__(self, kernel: Kernel, first_ledger_id: int) -> None:
        self.log = TopicLog(first_ledger_id)
        self.overrides = OverrideLedgers(kernel)
        self._cursor_ledgers = 0

    def create_cursor_ledger(self, writer: object) -> CursorLedger:
        """A ledger that `writer` may write to."""
        self._cursor_ledgers += 1
        ledger = CursorLedger(self._cursor_ledgers)
        ledger.writer = writer
        return ledger

    @staticmethod
    def delete(subscription: Subscription) -> None:
        """Delete a cursor's record."""
        if subscription.info is not None:
            subscription.last_version = subscription.info.version
        subscription.info = None

    def make(self, subscription: Subscription, mark_delete: Position, resets: tuple[int, ...]) -> None:
        """A new life of a deleted subscription. No writer of the former one has its version."""
        record = CursorRecord(mark_delete, frozenset(), {}, resets)
        subscription.info = CursorInfo(subscription.last_version + 1_000, None, record, {})

    @staticmethod
    def put(subscription: Subscription, info: CursorInfo, version: int) -> int:
        """Write a cursor's record; its new version. Raises BadVersionError."""
        stored = subscription.info
        if stored is None or stored.version != version:
            raise BadVersionError
        info.version = version + 1
        subscription.info = info
        return info.version
