"""Recovery: rebuilds the state of each subscription from the keys of a store.

Reads the manifest, the bitmaps and the journal, but no block. Damaged values are copied aside, reported and
treated so that no message is lost: damaged held positions are not held, damaged acknowledgements are
forgotten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import (
    CorruptRecordError,
    DamagedDirectoryError,
    ForeignDirectoryError,
    NewerFormatError,
)
from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, decode_block, describe
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import Identity, State, decode_keys, decode_slice
from tidegate.index.format.moved import decode_moved
from tidegate.index.format.packing import unpack_entries
from tidegate.index.format.upgrade import format_record, upgrade
from tidegate.index.journal.damage import Damage
from tidegate.index.journal.journals import JournalReader, Journals, Rows
from tidegate.index.options import IndexOptions
from tidegate.index.state.claim import LOST, UNKNOWN
from tidegate.index.state.moved import Moved
from tidegate.index.state.position_state import ChangedLedgers
from tidegate.index.state.positions import PositionSet
from tidegate.index.state.roaring import deserialize_bitmap
from tidegate.index.store import Batch, Store

_FORMAT_KIND = b"\x00"

RangeOf = Callable[[bytes], tuple[bytes, bytes]]
"""From a kind to the range of keys to read."""

_UNKNOWN_VERSION = 1 << 62
"""Version of a damaged state: beyond every one in use."""


@dataclass
class Recovered:
    """One subscription as stored. `audit`: find held positions without a readable entry."""

    subscription_id: int
    identity: Identity
    state: State
    reader: JournalReader
    held: PositionSet | None = None
    acknowledged: PositionSet | None = None
    damaged_ledgers: ChangedLedgers = field(default_factory=lambda: ChangedLedgers(set(), set(), set()))
    held_versions: dict[int, int] = field(default_factory=dict)
    acknowledged_versions: dict[int, int] = field(default_factory=dict)
    moved: Moved = field(default_factory=Moved)
    moved_versions: dict[int, int] = field(default_factory=dict)
    slices: dict[SliceId, list[BlockDescriptor]] = field(default_factory=dict)
    carried: Entries = field(default_factory=Entries.empty)
    audit: bool = False
    damaged: bool = False


class Recovery:
    """A store's content. Read the readers in the order of the subscriptions."""

    def __init__(
        self, subscriptions: list[Recovered], strangers: set[int], journals: Journals, damage: Damage
    ) -> None:
        self.subscriptions = subscriptions
        self.damage = damage
        self._strangers = strangers
        self._journals = journals

    def finish(self) -> int:
        """Complete the damage, after all readers. Returns an id above all ids in use."""
        self._journals.skip_rest()
        strangers = self._strangers | self._journals.strangers
        for subscription_id in strangers:
            for kind in keys.SUBSCRIPTION_KINDS:
                self.damage.batch.delete_range(*keys.subscription_range(kind, subscription_id))
        return max([0, *(each.subscription_id for each in self.subscriptions), *strangers]) + 1


def check_format(store: Store, options: IndexOptions) -> None:
    """Write the format version into a new store; check an existing one, and upgrade an older one.

    Raises NewerFormatError, ForeignDirectoryError, DamagedDirectoryError.
    """
    try:
        value = store.get(keys.FORMAT_KEY)
        found = None if value is None else int.from_bytes(unwrap(_FORMAT_KIND, value), "little")
    except CorruptRecordError as error:
        raise DamagedDirectoryError(str(store), f"its format version: {error}") from error
    if found is None:
        first, _ = next(store.scan(b"", b"\xff" * 16), (None, b""))
        if first is not None and keys.is_ours(first):
            raise DamagedDirectoryError(str(store), "its format version is missing")
        if first is not None:
            raise ForeignDirectoryError(str(store))
        batch = Batch()
        batch.put(keys.FORMAT_KEY, format_record(FORMAT_VERSION))
        store.write(batch, sync=True)
        return
    if found > FORMAT_VERSION:
        raise NewerFormatError(str(store), found, FORMAT_VERSION)
    if found < FORMAT_VERSION:
        upgrade(store, found, options.slice_width_auto)


def recover(store: Store, options: IndexOptions) -> Recovery:
    """Read every subscription; delete everything uncommitted. `options` replace an unreadable width.

    The readers read the journals; `Recovery.finish` must follow.
    """
    damage = Damage()
    strangers: set[int] = set()
    identities = _identities(store, damage, strangers)
    # There are many blocks, and none without a slice, except of a half-read log, which has a chain.
    states, carries, chains = (
        {keys.subscription_id_of(key) for key, _ in store.scan(*keys.kind_range(kind))}
        for kind in (keys.STATE, keys.CARRY, keys.CHAIN)
    )
    strangers |= (states | carries | chains) - identities.keys()
    journals = Journals(store.scan(*keys.kind_range(keys.JOURNAL)))
    found, others = _recover(
        store,
        options,
        identities,
        journals,
        damage,
        range_of=keys.kind_range,
        states=states,
        carries=carries,
    )
    return Recovery(list(found.values()), strangers | others, journals, damage)


def recover_one(
    store: Store, options: IndexOptions, subscription_id: int, identity: Identity
) -> tuple[Recovered, Damage]:
    """Read one subscription as `recover` does; the store lacks its identity so far."""
    damage = Damage()
    ids = {subscription_id}
    found, _ = _recover(
        store,
        options,
        {subscription_id: identity},
        Journals(store.scan(*keys.subscription_range(keys.JOURNAL, subscription_id))),
        damage,
        range_of=lambda kind: keys.subscription_range(kind, subscription_id),
        states=ids,
        carries=ids,
    )
    return found[subscription_id], damage


def _identities(store: Store, damage: Damage, strangers: set[int]) -> dict[int, Identity]:
    identities = {}
    for key, value in store.scan(*keys.kind_range(keys.IDENTITY)):
        subscription_id = keys.subscription_id_of(key)
        try:
            identities[subscription_id] = Identity.decode(value)
        except CorruptRecordError as error:
            damage.report(key, value, f"{error}; its subscription will be read again")
            strangers.add(subscription_id)
            damage.batch.delete(key)
    return identities


def _recover(
    store: Store,
    options: IndexOptions,
    identities: dict[int, Identity],
    journals: Journals,
    damage: Damage,
    *,
    range_of: RangeOf,
    states: set[int],
    carries: set[int],
) -> tuple[dict[int, Recovered], set[int]]:
    """Read these subscriptions from the store, and note the ids of others met.

    states, carries: subscriptions that may have a state, and carried entries: a vain look-up costs as much as
    a successful one.
    """
    found: dict[int, Recovered] = {}
    strangers: set[int] = set()
    for subscription_id, identity in identities.items():
        state = _fresh_state(options)
        if subscription_id in states:
            state = _read_state(store, subscription_id, state, damage)
        reader = JournalReader(journals, subscription_id, state.persisted_sequence, damage)
        # Without the state the valid bitmaps are unknown: an audit checks their positions.
        unsure = state.version == _UNKNOWN_VERSION
        found[subscription_id] = Recovered(
            subscription_id, identity, state, reader, audit=unsure, damaged=unsure
        )

    def by_subscription(kind: bytes) -> Iterator[tuple[Recovered, Rows]]:
        """A kind's rows in one scan: a scan for each subscription would cost as much as its rows."""
        rows = store.scan(*range_of(kind))
        for prefix, group in groupby(rows, lambda row: row[0][: keys.PREFIX_BYTES]):
            subscription_id = keys.subscription_id_of(prefix)
            if subscription_id in found:
                yield found[subscription_id], group
            else:
                strangers.add(subscription_id)

    uncommitted: defaultdict[int, set[bytes]] = defaultdict(set)
    for each, rows in by_subscription(keys.INTENT):
        uncommitted[each.subscription_id] = _delete_uncommitted(rows, damage)
    for kind in (keys.HELD, keys.ACKNOWLEDGED):
        for each, rows in by_subscription(kind):
            _read_bitmaps(rows, each, kind, uncommitted[each.subscription_id], damage)
    for each, rows in by_subscription(keys.MOVED):
        _read_moved(rows, each, uncommitted[each.subscription_id], damage)
    for each, rows in by_subscription(keys.SLICE):
        _read_slices(store, rows, each, uncommitted[each.subscription_id], damage)
    for each in found.values():
        if each.subscription_id in carries:
            _read_carry(store, each, damage)
    return found, strangers


def _fresh_state(options: IndexOptions) -> State:
    return State(0, 0, 1, options.slice_width_ms, (-1, -1), options.slice_width_auto, 0, UNKNOWN)


def _read_state(store: Store, subscription_id: int, fresh: State, damage: Damage) -> State:
    key = keys.subscription_key(keys.STATE, subscription_id)
    value = None
    try:
        value = store.get(key)
        return fresh if value is None else State.decode(value)
    except CorruptRecordError as error:
        damage.report(key, value, str(error))
        # Versions and ids in use are unknown: choose numbers far beyond. OPEN brings the mark-delete position
        # and a generation other than 0: no acknowledgement counts.
        return fresh._replace(version=_UNKNOWN_VERSION, next_block_id=1 << 62, claim=LOST)


def _delete_uncommitted(rows: Rows, damage: Damage) -> set[bytes]:
    """Delete an interrupted persist's blocks and bitmaps, which do not count; returns their keys."""
    uncommitted = set()
    for key, value in rows:
        try:
            for written in decode_keys(value):
                damage.batch.delete(written)
                uncommitted.add(written)
        except CorruptRecordError as error:
            damage.report(key, value, str(error))
        damage.batch.delete(key)
    return uncommitted


def _read_bitmaps(rows: Rows, found: Recovered, kind: bytes, uncommitted: set[bytes], damage: Damage) -> None:
    versions, damaged = found.held_versions, found.damaged_ledgers.held
    if kind == keys.ACKNOWLEDGED:
        versions, damaged = found.acknowledged_versions, found.damaged_ledgers.acknowledged
    bodies: dict[int, bytes] = {}
    for ledger_id, key, value in _last_versions(rows, found, kind, versions, uncommitted, damage):
        try:
            bodies[ledger_id] = bytes(unwrap(kind, value))  # the garbage collector walks views
        except CorruptRecordError as error:
            damage.report(key, value, str(error))
            bodies.pop(ledger_id, None)
            damaged.add(ledger_id)
    try:
        positions = PositionSet.of_portable(bodies.items(), tracked=True)
    except CorruptRecordError:
        # The error does not name the damaged one: try each. A whole subscription has up to 100,000.
        for ledger_id in list(bodies):
            try:
                if not deserialize_bitmap(bodies[ledger_id]):
                    del bodies[ledger_id]
            except CorruptRecordError as error:
                key = keys.bitmap_key(kind, found.subscription_id, ledger_id, versions[ledger_id])
                damage.report(key, wrap(kind, bodies.pop(ledger_id)), str(error))
                damaged.add(ledger_id)
        positions = PositionSet.of_portable(bodies.items(), tracked=True)
    if kind == keys.HELD:
        found.held = positions
    else:
        found.acknowledged = positions
    found.damaged = found.damaged or bool(damaged)


def _last_versions(  # noqa: PLR0917 the parts of one reading
    rows: Rows,
    found: Recovered,
    kind: bytes,
    versions: dict[int, int],
    uncommitted: set[bytes],
    damage: Damage,
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (ledger_id, key, value) of the values that count, or counted until the ledger's next one."""
    for key, value in rows:
        if key in uncommitted:
            continue
        ledger_id, version = keys.parse_bitmap_key(key)
        if version > found.state.version:
            # Otherwise it would count once a persist reaches its version.
            damage.batch.delete(key)
            continue
        if ledger_id in versions:
            damage.batch.delete(keys.bitmap_key(kind, found.subscription_id, ledger_id, versions[ledger_id]))
        versions[ledger_id] = version
        yield ledger_id, key, value


def _read_moved(rows: Rows, found: Recovered, uncommitted: set[bytes], damage: Damage) -> None:
    """Read the times of moved positions.

    The broker's ledger has damaged ones; until they come from there, positions in no slice are lost.
    """
    moved: dict[int, Entries] = {}
    for ledger_id, key, value in _last_versions(
        rows, found, keys.MOVED, found.moved_versions, uncommitted, damage
    ):
        moved.pop(ledger_id, None)
        try:
            moved[ledger_id] = decode_moved(value, ledger_id)
        except CorruptRecordError as error:
            damage.report(key, value, str(error))
            found.damaged_ledgers.moved.add(ledger_id)
            found.audit = found.damaged = True
    found.moved = Moved(moved.values())


def _read_slices(store: Store, rows: Rows, found: Recovered, uncommitted: set[bytes], damage: Damage) -> None:
    for key, value in rows:
        slice_id = keys.parse_slice_key(key)
        try:
            found.slices[slice_id] = decode_slice(value)
        except CorruptRecordError as error:
            damage.report(key, value, str(error))
            found.slices[slice_id] = _rebuild_slice(
                store, found.subscription_id, slice_id, uncommitted, damage
            )
            found.audit = found.damaged = True
    # A compaction takes ids without a change of the state.
    given = (block.block_id + 1 for blocks in found.slices.values() for block in blocks)
    next_block_id = max(given, default=found.state.next_block_id)
    found.state = found.state._replace(next_block_id=max(found.state.next_block_id, next_block_id))


def _rebuild_slice(
    store: Store, subscription_id: int, slice_id: SliceId, uncommitted: set[bytes], damage: Damage
) -> list[BlockDescriptor]:
    """The blocks of a slice with a damaged record, from the blocks themselves; each is its own run."""
    blocks = []
    start = keys.block_key(subscription_id, slice_id, 0)
    end = keys.block_key(subscription_id, slice_id, (1 << 64) - 1)
    for key, value in store.scan(start, end):
        if key in uncommitted:
            continue
        block_id = keys.parse_block_key(key)
        try:
            blocks.append(describe(decode_block(value), len(value), block_id, block_id))
        except CorruptRecordError as error:
            damage.report(key, value, str(error))
            damage.batch.delete(key)
    return blocks


def _read_carry(store: Store, found: Recovered, damage: Damage) -> None:
    key = keys.subscription_key(keys.CARRY, found.subscription_id)
    value = None
    try:
        value = store.get(key)
        if value is not None:
            found.carried = unpack_entries(unwrap(keys.CARRY, value))
    except CorruptRecordError as error:
        damage.report(key, value, str(error))
        found.audit = found.damaged = True
