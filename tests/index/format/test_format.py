"""Stored bytes: golden files that must keep their meaning, sizes, and corruption that must be noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.golden_format import DIRECTORY, Golden, golden
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries, EntryKey
from tidegate.index.entries.sort import sort_entries
from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.block import decode_block, describe, encode_block
from tidegate.index.format.commits import Statement, commit_record, decode_commit
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import (
    Identity,
    State,
    decode_keys,
    decode_slice,
    encode_keys,
    encode_slice,
)
from tidegate.index.format.moved import decode_moved, encode_moved
from tidegate.index.format.packing import pack_entries, unpack_entries
from tidegate.index.format.records import RecordType, decode_entries, decode_numbers, decode_positions
from tidegate.index.format.upgrade import decode_state_1, decode_state_2, format_record
from tidegate.index.journal.journal import Journal, Record
from tidegate.index.names import SubscriptionName
from tidegate.index.state.claim import UNKNOWN, Claim
from tidegate.index.state.positions import PositionSet
from tidegate.index.state.roaring import deserialize_bitmap, serialize_bitmap
from tidegate.index.store import Batch, MemoryStore

THREE = Entries.of([(1_700_000_000_000, 5, 0), (1_700_000_000_000, 5, 1), (1_700_000_000_250, 6, 70_000)])
HUNDRED = Entries.of((1_700_000_000_000 + 100 * at, 5, at) for at in range(100))
POSITIONS = PositionSet.of([*((5, at) for at in range(5)), (6, 70_000)])
IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), bytes(range(16)))
STATE = State(3, 41, 11, 3_600_000, (5, -1), True, 0x0123_4567_89AB_CDEF, Claim(7, 0xF102_0304))
STATE_3 = STATE._replace(claim=UNKNOWN)
STATE_2 = STATE_3._replace(generation=0)
STATE_1 = STATE_2._replace(slice_width_auto=False)
SLOT = Statement(45, 4, settled=False)
DAY_MS = 86_400_000


def bitmap_of_five() -> bytes:
    return serialize_bitmap(dict(POSITIONS.items())[5])


def record(sequence: int, record_type: RecordType, **fields: object) -> Golden:
    subscription = Journal(MemoryStore(), ManualClock(0), piece_bytes=1).recovered_subscription(
        7, persisted_sequence=sequence - 1
    )
    made = Record(subscription, record_type)
    for name, value in fields.items():
        setattr(made, name, value)
    batch = Batch()
    made.put_into(batch)
    _, key, value = batch.operations[0]
    return Golden(key, value)


SLICE = SliceId(3_600_000, 472_222)
WRITTEN: dict[str, Callable[[], Golden]] = {
    "format": lambda: Golden(keys.FORMAT_KEY, format_record(FORMAT_VERSION)),
    "commit": lambda: Golden(keys.COMMIT_KEY, commit_record(41)),
    "witness_slot": lambda: Golden(b"", SLOT.encode()),
    "identity": lambda: Golden(keys.subscription_key(b"S", 7), IDENTITY.encode()),
    "state": lambda: Golden(keys.subscription_key(b"T", 7), STATE.encode()),
    "slice": lambda: Golden(keys.slice_key(7, SLICE), encode_slice([describe(THREE, 150, 9, 9)])),
    "block_fixed": lambda: Golden(keys.block_key(7, SLICE, 9), encode_block(THREE)),
    "held": lambda: Golden(keys.bitmap_key(b"H", 7, 5, 3), wrap(b"H", bitmap_of_five())),
    "carry": lambda: Golden(keys.subscription_key(b"C", 7), wrap(b"C", pack_entries(THREE, compress=False))),
    "journal_add": lambda: record(1, RecordType.ADD, parts=[THREE]),
    "journal_acknowledge": lambda: record(2, RecordType.ACKNOWLEDGE, positions=POSITIONS),
    "journal_unacknowledge": lambda: record(3, RecordType.UNACKNOWLEDGE, positions=POSITIONS),
    "journal_mark_delete": lambda: record(4, RecordType.MARK_DELETE, numbers=(5, -1)),
    "journal_clear": lambda: record(5, RecordType.CLEAR),
    "journal_width": lambda: record(6, RecordType.WIDTH, numbers=(60_000, 0)),
    "journal_width_auto": lambda: record(7, RecordType.WIDTH, numbers=(60_000, 1)),
    "journal_generation": lambda: record(8, RecordType.GENERATION, numbers=(STATE.generation, 0)),
    "journal_claim": lambda: record(9, RecordType.CLAIM, numbers=STATE.claim),
    "journal_disown": lambda: record(10, RecordType.DISOWN, positions=POSITIONS),
    "journal_move": lambda: record(11, RecordType.MOVE, parts=[THREE]),
    "moved": lambda: Golden(keys.bitmap_key(b"V", 7, 5, 3), encode_moved(THREE.part(0, 2))),
    "intent": lambda: Golden(keys.intent_key(7, 3, 0), encode_keys([keys.bitmap_key(b"H", 7, 5, 3)])),
}
READ: dict[str, tuple[Callable[[bytes], object], object]] = {
    "format": (lambda value: bytes(unwrap(b"\0", value)), b"\5\0\0\0"),
    "v4_format": (lambda value: bytes(unwrap(b"\0", value)), b"\4\0\0\0"),
    "v1_format": (lambda value: bytes(unwrap(b"\0", value)), b"\1\0\0\0"),
    "v2_format": (lambda value: bytes(unwrap(b"\0", value)), b"\2\0\0\0"),
    "v3_format": (lambda value: bytes(unwrap(b"\0", value)), b"\3\0\0\0"),
    "v3_state": (State.decode, STATE_3),
    "v2_state": (decode_state_2, STATE_2),
    "v1_state": (lambda value: decode_state_1(value, False), STATE_1),
    "commit": (decode_commit, 41),
    "witness_slot": (Statement.decode, SLOT),
    "identity": (Identity.decode, IDENTITY),
    "state": (State.decode, STATE),
    "slice": (decode_slice, [describe(THREE, 150, 9, 9)]),
    "block_fixed": (decode_block, THREE),
    "block_pcodec": (decode_block, HUNDRED),
    "held": (lambda value: set(deserialize_bitmap(bytes(unwrap(b"H", value)))), set(range(5))),
    "carry": (lambda value: unpack_entries(unwrap(b"C", value)), THREE),
    "journal_add": (decode_entries, THREE),
    "journal_acknowledge": (decode_positions, POSITIONS),
    "journal_unacknowledge": (decode_positions, POSITIONS),
    "journal_mark_delete": (decode_numbers, (5, -1)),
    "journal_clear": (decode_numbers, (0, 0)),
    "journal_width": (decode_numbers, (60_000, 0)),
    "journal_width_auto": (decode_numbers, (60_000, 1)),
    "journal_generation": (decode_numbers, (STATE.generation, 0)),
    "journal_claim": (decode_numbers, (7, 0xF102_0304)),
    "journal_disown": (decode_positions, POSITIONS),
    "journal_move": (decode_entries, THREE),
    "moved": (lambda value: decode_moved(value, 5), THREE.part(0, 2)),
    "intent": (decode_keys, [keys.bitmap_key(b"H", 7, 5, 3)]),
}


def test_every_golden_file_is_read() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.hex")} == READ.keys()


@pytest.mark.parametrize("name", sorted(READ))
def test_golden_bytes_are_read(name: str) -> None:
    decode, expected = READ[name]
    assert decode(golden(name).value) == expected


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_golden_bytes_are_written(name: str) -> None:
    assert WRITTEN[name]() == golden(name)


@pytest.mark.parametrize("name", sorted(READ))
def test_every_flipped_bit_and_every_cut_is_noticed(name: str) -> None:
    decode, _ = READ[name]
    value = golden(name).value
    for at in range(len(value)):
        flipped = value[:at] + bytes([value[at] ^ (1 << at % 8)]) + value[at + 1 :]
        with pytest.raises(CorruptRecordError):
            decode(flipped)
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            decode(value[:size])
    with pytest.raises(CorruptRecordError):
        decode(value + b"\0")


@pytest.mark.parametrize("name", sorted(READ))
def test_a_valid_checksum_does_not_excuse_a_wrong_body(name: str) -> None:
    """Bytes that a bug has written rather than a disk has damaged."""
    decode, expected = READ[name]
    value = golden(name).value
    kind, body = value[3:4], value[8:]
    for size in range(len(body)):
        try:
            decoded = decode(wrap(kind, body[:size]))
        except CorruptRecordError:
            continue
        assert decoded != expected
    if name != "intent":
        assert name.endswith("format") or decode(wrap(kind, body)) == expected


@pytest.mark.parametrize("compress", [False, True])
def test_a_few_bytes_that_say_they_are_many_entries_are_not_unpacked(compress: bool) -> None:
    """Whoever puts a block in, and whatever a log has: it costs no more memory than a block can."""
    many = Entries(*np.zeros((3, 1 << 20), dtype=np.int64))
    packed = pack_entries(many, compress=compress)
    assert len(packed) < 100
    with pytest.raises(CorruptRecordError, match="1048576 entries where at most 65536 fit"):
        decode_block(wrap(keys.BLOCK, bytes(32) + packed))
    with pytest.raises(CorruptRecordError, match="1048576 entries"):
        decode_entries(wrap(keys.JOURNAL, packed))
    steps = Entries(*np.tile(np.arange(1 << 20, dtype=np.int64) % 2, (3, 1)))
    body = bytearray(pack_entries(steps, compress=True))
    body[:4] = (100).to_bytes(4, "little")
    with pytest.raises(CorruptRecordError, match="does not hold 100 entries"):
        decode_block(wrap(keys.BLOCK, bytes(32) + body))


def test_keys_of_golden_files_are_parsed() -> None:
    assert keys.parse_slice_key(golden("slice").key) == SLICE
    assert keys.parse_slice_key(golden("block_pcodec").key) == SliceId(3_600_000, -1)
    assert keys.parse_block_key(golden("block_fixed").key) == 9
    assert keys.parse_bitmap_key(golden("held").key) == (5, 3)
    assert keys.parse_bitmap_key(golden("moved").key) == (5, 3)
    assert keys.parse_journal_key(golden("journal_width").key) == (6, RecordType.WIDTH)
    assert keys.subscription_id_of(golden("state").key) == 7


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(
    rows=st.lists(
        st.one_of(
            st.tuples(INT64, INT64, INT64), st.tuples(st.integers(0, 300), st.just(5), st.just(1 << 32))
        ),
        max_size=150,
    ),
    compress=st.booleans(),
)
@settings(deadline=None)
def test_any_entries_come_back(rows: list[EntryKey], compress: bool) -> None:
    entries = Entries.of(rows)
    assert unpack_entries(memoryview(pack_entries(entries, compress=compress))) == entries


def bytes_an_entry(entries: Entries) -> float:
    """Of entries in blocks of 65,536, as one slice after another holds them."""
    size_bytes = 0
    for start in range(0, len(entries), 65_536):
        part = entries.part(start, min(len(entries), start + 65_536))
        value = encode_block(part)
        assert decode_block(value) == part
        size_bytes += len(value)
    return size_bytes / len(entries)


def test_blocks_of_uniform_delays_are_near_the_information_floor() -> None:
    """10 M entries uniform over 24 h; the first 4 blocks of them."""
    rng = np.random.default_rng(1)
    total, kept = 10_000_000, 4 * 65_536
    deliver_at_ms = np.sort(rng.integers(0, DAY_MS * kept // total, kept))
    position = rng.integers(0, total, kept)
    entries = Entries(deliver_at_ms, position // 50_000 + 100, position % 50_000)
    assert bytes_an_entry(sort_entries(entries)) <= 4.2


def test_blocks_of_one_fixed_delay_are_almost_nothing() -> None:
    position = np.arange(4 * 65_536)
    entries = Entries(1_700_000_000_000 + position // 20, position // 50_000 + 100, position % 50_000)
    assert bytes_an_entry(entries) < 0.1
