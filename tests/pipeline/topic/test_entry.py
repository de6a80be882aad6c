"""Parts of an entry: metadata, batches, compression, and bytes that are none of Pulsar's."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.pipeline.entries import CODECS, batch, compressed, entry
from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.entry import (
    Entry,
    Single,
    decompressed,
    is_marker,
    is_transactional,
    messages,
    parse_entry,
)
from tidegate.pipeline.topic.rows import RowBuilder, Wanted


def parsed(data: bytes) -> Entry:
    return parse_entry(7, data)


def test_one_message() -> None:
    one = parsed(entry(b"hello", partition_key="k", deliver_at_time=1_700_000_009_000))
    assert one.metadata.deliver_at_time == 1_700_000_009_000
    assert list(messages(one)) == [Single(-1, "k", 5, None)]
    assert next(messages(one, payloads=True)).payload == b"hello"


def test_without_a_checksum() -> None:
    assert parsed(entry(checksum=False)).payload == b"hello"


def test_what_is_shorter_than_a_checksum_would_be() -> None:
    one = parsed(b"\x00\x00\x00\x04\x0a\x00\x18\x00")
    assert (one.metadata.producer_name, one.metadata.publish_time, one.payload) == ("", 0, b"")


def test_with_what_a_broker_adds_in_front() -> None:
    added = b"\x08\x01\x10\x02"
    data = b"\x0e\x02" + struct.pack(">I", len(added)) + added + entry()
    assert parsed(data).payload == b"hello"


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_in_every_compression(codec: int) -> None:
    told = [("a", b"one"), (None, b""), ("b", b"three" * 50)]
    one = parsed(batch(told, codec))
    assert [(each.key, each.payload) for each in messages(one, payloads=True)] == told
    assert [each.size_bytes for each in messages(one)] == [3, 0, 250]
    assert [each.batch_index for each in messages(one)] == [0, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_message(codec: int) -> None:
    data = b"payload" * 30
    one = parsed(
        entry(compressed(codec, data), compression=codec, uncompressed_size=len(data) if codec else 0)
    )
    assert decompressed(one) == data
    assert next(messages(one)).size_bytes == len(data)


def test_an_encrypted_batch_shows_how_many_only() -> None:
    one = parsed(batch([("a", b"1"), ("b", b"2")], encryption_keys=[{"key": "k"}]))
    assert list(messages(one, payloads=True)) == [Single(0, None, None, None), Single(1, None, None, None)]


def test_an_encrypted_message_shows_its_metadata() -> None:
    one = parsed(entry(b"secret", partition_key="k", encryption_keys=[{"key": "k"}]))
    assert list(messages(one, payloads=True)) == [Single(-1, "k", 6, None)]


def test_a_chunk() -> None:
    one = parsed(entry(b"part", chunk_id=1, num_chunks_from_msg=3, compression=1, uncompressed_size=99))
    assert list(messages(one, payloads=True)) == [Single(-1, None, 4, None)]
    table = RowBuilder("t", -1, Wanted(), payloads=True).batch(5, [one])
    (row,) = table.to_pylist()
    assert (row["chunk_id"], row["chunks"]) == (1, 3)


def test_a_key_that_is_told_to_be_null() -> None:
    assert next(messages(parsed(entry(partition_key="", null_partition_key=True)))).key is None


def test_markers_and_transactions() -> None:
    assert is_marker(parsed(entry(marker_type=22)).metadata)
    assert not is_marker(parsed(entry()).metadata)
    assert is_transactional(parsed(entry(txnid_least_bits=0, txnid_most_bits=0)).metadata)
    assert not is_transactional(parsed(entry()).metadata)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x0e\x01",
        b"\x0e\x02\x00\x00\xff\xff",
        entry()[:-1],
        entry()[:12],
        b"\x00\x00\x00\x05\xff\xff\xff\xff\xff",
        struct.pack(">I", 1 << 31) + b"x" * 20,
    ],
)
def test_what_is_no_entry(data: bytes) -> None:
    with pytest.raises(WireError):
        parsed(data)


def test_a_flipped_bit_is_noticed() -> None:
    data = bytearray(entry(b"hello"))
    data[-1] ^= 1
    with pytest.raises(WireError, match="fails its checksum"):
        parsed(bytes(data))


@pytest.mark.parametrize(
    "data",
    [
        entry(b"\x00\x00\x00\x02", num_messages_in_batch=2),
        entry(b"\x00\x00\x00\x00", num_messages_in_batch=1 << 30),
        entry(b"\x00\x00\x00\x00", num_messages_in_batch=-5),
        entry(struct.pack(">I", 2) + b"\x18\x7f" + b"short", num_messages_in_batch=1),
        entry(struct.pack(">I", 3) + b"\xff\xff\xff", num_messages_in_batch=1),
        entry(b"xx", compression=1, uncompressed_size=10, num_messages_in_batch=1),
        entry(b"xx", compression=2, uncompressed_size=10, num_messages_in_batch=1),
        entry(b"xx", compression=3, uncompressed_size=10, num_messages_in_batch=1),
        entry(b"xx", compression=4, uncompressed_size=10, num_messages_in_batch=1),
        entry(b"xx", compression=9, uncompressed_size=10, num_messages_in_batch=1),
        entry(b"xx", compression=1, uncompressed_size=1 << 31, num_messages_in_batch=1),
        entry(compressed(2, b"x" * 100), compression=2, uncompressed_size=10, num_messages_in_batch=1),
    ],
)
def test_a_batch_that_makes_no_sense(data: bytes) -> None:
    with pytest.raises(WireError):
        list(messages(parsed(data)))


def test_rows_of_a_field_that_makes_no_sense() -> None:
    with pytest.raises(WireError, match="makes no sense"):
        RowBuilder("t", -1, Wanted()).batch(5, [parsed(entry(publish_time=1 << 63))])
    raw = entry(producer_name="ab").replace(b"ab", b"\xff\xfe")
    with pytest.raises(WireError, match="makes no sense"):
        RowBuilder("t", -1, Wanted()).batch(5, [parse_entry(7, raw, checked=True)])


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_a_wire_error(data: bytes) -> None:
    with contextlib.suppress(WireError):
        list(messages(parse_entry(1, data, checked=True), payloads=True))


@settings(deadline=None)
@given(st.data())
def test_any_damage_to_an_entry_is_an_entry_or_a_wire_error(data: st.DataObject) -> None:
    whole = bytearray(batch([("a", b"one"), ("b", b"two")], data.draw(st.sampled_from(sorted(CODECS)))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireError):
        list(messages(parse_entry(1, bytes(whole), checked=True), payloads=True))
