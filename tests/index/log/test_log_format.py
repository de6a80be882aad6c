"""The bytes of an index log: golden files that must keep their meaning, and damage that must be noticed."""

from __future__ import annotations

import pytest

from tests.support.golden_format import DIRECTORY as FORMAT_DIRECTORY
from tidegate.index.errors import CorruptRecordError, UnreadableLogError
from tidegate.index.format import keys
from tidegate.index.format.chain import Chain
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.manifest import Identity
from tidegate.index.log.reader import LogParser
from tidegate.index.log.records import EntryKind, Header, encode_operations, encode_record
from tidegate.index.names import SubscriptionName
from tidegate.index.store import Batch

DIRECTORY = FORMAT_DIRECTORY.parent / "log"
CHAIN = 0x0123456789ABCDEF
IDENTITY = Identity(SubscriptionName("persistent://public/default/orders", "late"), bytes(range(16)))
STATE = keys.stripped(keys.subscription_key(keys.STATE, 7))
JOURNAL = keys.stripped(keys.journal_key(7, 42, 1))
ENTRIES = {
    "log_header": Header(CHAIN, IDENTITY).encode(),
    "log_snapshot": encode_record(
        EntryKind.SNAPSHOT, encode_operations([(Batch.PUT, STATE, b"state")]), CHAIN, 1
    )[0],
    "log_snapshot_end": encode_record(EntryKind.SNAPSHOT_END, b"", CHAIN, 2)[0],
    "log_batch": encode_record(
        EntryKind.BATCH,
        encode_operations(
            [
                (Batch.PUT, JOURNAL, b"entries"),
                (Batch.DELETE, STATE, b""),
                (Batch.DELETE_RANGE, keys.JOURNAL, keys.after_kind(keys.JOURNAL)),
            ]
        ),
        CHAIN,
        3,
    )[0],
}


def golden_entry(name: str) -> bytes:
    lines = (DIRECTORY / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line.split("#")[0].strip() for line in lines))


def parsed(*entries: bytes) -> LogParser:
    parser = LogParser(IDENTITY)
    for entry in entries:
        parser.feed(entry)
    return parser


@pytest.mark.parametrize("name", ENTRIES)
def test_golden_entries_are_written(name: str) -> None:
    assert ENTRIES[name] == golden_entry(name)


def test_golden_entries_are_read() -> None:
    entries = [golden_entry(name) for name in ENTRIES]
    snapshot = parsed(*entries[:3])
    assert snapshot.complete
    assert snapshot.content.of(keys.STATE) == {STATE: b"state"}
    whole = parsed(*entries)
    assert whole.entries == 4
    assert not whole.content.of(keys.STATE)
    assert not whole.content.of(keys.JOURNAL)


@pytest.mark.parametrize(
    ("version", "read"),
    [(2, False), (3, True), (4, True), (FORMAT_VERSION, True), (FORMAT_VERSION + 1, False)],
)
def test_a_log_of_the_format_before_is_read(version: int, read: bool) -> None:
    """Its writer may be upgraded after the new owner."""
    body = bytearray(unwrap(b"h", ENTRIES["log_header"]))
    body[18:22] = version.to_bytes(4, "little")
    header = wrap(b"h", bytes(body))
    if read:
        assert parsed(header, *list(ENTRIES.values())[1:]).entries == 4
        return
    with pytest.raises(UnreadableLogError, match=f"values of format {version}"):
        parsed(header)


def test_a_long_record_is_several_entries_and_counts_as_one() -> None:
    data = encode_operations([(Batch.PUT, STATE, bytes(2_500_000))])
    entries = encode_record(EntryKind.SNAPSHOT, data, CHAIN, 1)
    assert len(entries) == 3
    begun = parsed(ENTRIES["log_header"], *entries[:2])
    assert not begun.content.of(keys.STATE)
    begun.feed(entries[2])
    assert len(begun.content.of(keys.STATE)[STATE]) == 2_500_000


@pytest.mark.parametrize("name", ENTRIES)
def test_every_flipped_bit_is_noticed(name: str) -> None:
    before = list(ENTRIES.values())[: list(ENTRIES).index(name)]
    entry = ENTRIES[name]
    for at in range(len(entry)):
        parser = parsed(*before)
        with pytest.raises((CorruptRecordError, UnreadableLogError)):
            parser.feed(entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :])


@pytest.mark.parametrize(
    "entries",
    [
        ["log_snapshot"],
        ["log_header", "log_snapshot_end"],
        ["log_header", "log_batch"],
        ["log_header", "log_snapshot", "log_snapshot"],
        ["log_header", "log_snapshot", "log_snapshot_end", "log_snapshot_end"],
    ],
)
def test_entries_out_of_order_are_refused(entries: list[str]) -> None:
    with pytest.raises(CorruptRecordError):
        parsed(*(ENTRIES[name] for name in entries))


def test_the_log_of_another_life_is_refused() -> None:
    other = Header(CHAIN, IDENTITY._replace(incarnation=bytes(16))).encode()
    with pytest.raises(UnreadableLogError, match="another subscription"):
        parsed(other)


def test_a_chain_is_written_and_read() -> None:
    lines = (DIRECTORY / "chain.hex").read_text().splitlines()
    value = bytes.fromhex("".join(line.split("#")[0].strip() for line in lines[lines.index("---") + 1 :]))
    chain = Chain(4711, "bookkeeper")
    assert chain.encode() == value
    assert Chain.decode(value) == chain
    for damaged in (value[:-1], value[:20] + b"x" + value[21:], b""):
        with pytest.raises(CorruptRecordError):
            Chain.decode(damaged)


@pytest.mark.parametrize("ledger_id", [-1, 0, 4711])
def test_a_chain_of_damaged_data_is_of_another_ledger_for_who_does_not_know_it(ledger_id: int) -> None:
    chain = Chain(ledger_id, "bookkeeper", whole=ledger_id == -1)
    assert Chain.decode(chain.encode()) == chain
    assert (chain.encode() == Chain(ledger_id, "bookkeeper").encode()) == chain.whole


def test_a_chain_says_which_logs_may_count_as_well() -> None:
    """One that knows no such thing takes it for another home, and reads the log."""
    chain = Chain(7, "bookkeeper").may_become(8).may_become(9)
    value = chain.encode()
    assert Chain.decode(value) == chain
    assert [chain.has(each, "bookkeeper") for each in (7, 8, 9, 10)] == [True, True, True, False]
    assert not chain.has(8, "file:///logs")
    assert bytes(unwrap(keys.CHAIN, value))[8:19] == b"bookkeeper\0"
    damaged = Chain(7, "bookkeeper", whole=False, also=(8,))
    assert Chain.decode(damaged.encode()) == damaged
    for cut in range(1, len(value)):
        with pytest.raises(CorruptRecordError):
            Chain.decode(value[:cut])
    many = chain
    for ledger_id in range(100):
        many = many.may_become(ledger_id)
    assert many.has(7, "bookkeeper")
    assert many.has(99, "bookkeeper")
    assert len(many.encode()) < 200


def test_data_that_replaces_others_knows_the_logs_of_those() -> None:
    former = Chain(7, "bookkeeper", whole=False).may_become(8).may_become(9)
    chain = Chain(8, "bookkeeper").replacing(former)
    assert (chain.ledger_id, chain.whole, chain.also) == (8, True, (7, 9))
    for other in (None, Chain(7, "file:///logs"), Chain(-1, "bookkeeper"), Chain(8, "bookkeeper")):
        assert Chain(8, "bookkeeper").replacing(other) == Chain(8, "bookkeeper")
    many = Chain(0, "bookkeeper", also=tuple(range(1, 17)))
    assert Chain(99, "bookkeeper").replacing(many).also == tuple(range(1, 17))
