"""The codec against the golden files, against itself, and against arbitrary bytes."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from tests.support.golden_frames import BAD, GOLDEN, GOOD, golden_bytes, golden_error
from tidegate.index.entries.entry import Entries
from tidegate.index.state.positions import PositionSet
from tidegate.plugin.errors import ErrorCode, ProtocolError
from tidegate.plugin.wire.codec import RECORDS_MAX, decode, encode
from tidegate.plugin.wire.control_messages import Ingest, Query, Reply
from tidegate.plugin.wire.frames import LENGTH_MAX, Frame, FrameDecoder, FrameType, encode_frame
from tidegate.plugin.wire.log_messages import LogAnswer, LogCode, LogOp, LogRequest
from tidegate.plugin.wire.messages import (
    Ack,
    Add,
    Behind,
    Cancel,
    Cancelled,
    Clear,
    Close,
    Credit,
    Due,
    Durable,
    Error,
    Held,
    Hello,
    MarkDelete,
    Message,
    Move,
    Open,
    Pace,
    Paced,
    Peek,
    Peeked,
    PeekKind,
    Ping,
    Pong,
    Reschedule,
    Rescheduled,
    Role,
    Sought,
    Standing,
    Unack,
    Unheld,
    Welcome,
    negotiate,
)
from tidegate.plugin.wire.position_pieces import split_positions
from tidegate.plugin.wire.release_pace import PACE_AMOUNTS, PaceKind, ReleasePace


def read_one(data: bytes) -> tuple[Frame, Message]:
    (frame,) = FrameDecoder().feed(data)
    return frame, decode(frame)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_golden_frames_are_read_and_written_byte_for_byte(path: Path) -> None:
    data = golden_bytes(path)
    frame, message = read_one(data)
    assert frame.type == int(path.stem[:2], 16)
    assert encode_frame(frame) == data
    assert encode(message, frame.stream, frame.seq) == data


def test_there_is_a_golden_frame_of_every_type() -> None:
    assert {int(path.stem[:2], 16) for path in GOOD} == {int(kind) for kind in FrameType}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_golden_bad_frames_are_refused(path: Path) -> None:
    code = golden_error(path)
    decoder = FrameDecoder()
    if code is None:
        assert list(decoder.feed(golden_bytes(path))) == []
        assert decoder.buffered_bytes == len(golden_bytes(path))
        return
    with pytest.raises(ProtocolError) as refused:
        for frame in decoder.feed(golden_bytes(path)):
            message = decode(frame)
            assert isinstance(message, Hello)
            negotiate(message)
    assert refused.value.code == code


def test_the_values_of_a_golden_frame() -> None:
    frame, message = read_one(golden_bytes(GOLDEN / "10_open_in_flight.hex"))
    assert frame.stream == 7
    assert message == Open(
        incarnation=bytes(range(0xA0, 0xB0)),
        epoch=3,
        generation=0x7123456789ABCDEF,
        horizon_ms=2_000,
        credit=20_000,
        mark_delete=(12, 3),
        topic="persistent://public/default/orders-partition-3",
        subscription="billing/é",
        in_flight=PositionSet.of([(12, 4), (12, 6), (15, 0), (15, 131_081)]),
        log_home="bookkeeper",
        log_pointer="1;4711;4700;bookkeeper",
        claims=(0x01020304, 0xFCFDFEFF),
        end=(13, 77),
    )


u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)
u64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
ids = st.integers(0, 2**63 - 1)
any_ids = st.integers(-1, 2**63 - 1)
strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
positions = st.lists(st.tuples(st.integers(0, 2**40), u32), max_size=20).map(PositionSet.of)
some_entries = st.lists(st.tuples(ids, ids, u32), max_size=20).map(Entries.of)
paces = st.sampled_from(PaceKind).flatmap(
    lambda kind: st.builds(ReleasePace, st.just(kind), st.integers(*PACE_AMOUNTS[kind]))
)
mark_deletes = st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 0xFFFF_FFFF))

on_stream_0 = st.one_of(
    st.builds(Hello, u16, u16, st.sampled_from(Role), strings, strings),
    st.builds(Welcome, u16, u32, u64, strings),
)
on_stream_0_with_seq = st.one_of(
    st.just(Ping()),
    st.just(Pong()),
    st.builds(Query, st.binary(max_size=40)),
    st.builds(Reply, st.binary(max_size=40)),
    st.builds(Ingest, strings, strings, st.binary(max_size=40), disown=st.booleans()),
)
on_stream = st.one_of(
    st.builds(Error, u16, strings),
    st.builds(
        Open,
        st.binary(min_size=16, max_size=16),
        ids,
        ids,
        u32,
        u32,
        mark_deletes,
        strings,
        strings,
        positions,
        strings,
        strings,
        st.lists(u32, max_size=64).map(tuple),
        mark_deletes,
    ),
    st.builds(Held, positions, positions, st.booleans()),
    st.builds(Due, some_entries),
    st.builds(Credit, u32),
    st.builds(Unheld, positions),
    st.builds(Cancel, positions, st.booleans()),
    st.builds(Cancelled, positions, positions, positions, st.sampled_from(Standing)),
    st.builds(Reschedule, some_entries, st.booleans()),
    st.builds(Rescheduled, positions, positions, positions, st.sampled_from(Standing)),
    st.builds(Pace, paces, st.booleans()),
    st.builds(Behind, u32),
    st.builds(Peek, positions, st.builds(Sought, st.sampled_from(PeekKind), strings, strings)),
    st.builds(Peeked, positions, positions, st.integers(0, 2**64 - 1), st.binary(max_size=40)),
    st.builds(Paced, paces, u32, strings),
)
on_stream_with_seq = st.one_of(
    st.builds(Add, some_entries, st.booleans()),
    st.builds(Move, some_entries, st.booleans()),
    st.just(Durable()),
    st.builds(Ack, positions),
    st.builds(Unack, positions),
    st.builds(MarkDelete, mark_deletes),
    st.just(Clear()),
    st.just(Close()),
    st.builds(
        LogRequest,
        st.sampled_from(LogOp),
        any_ids,
        any_ids,
        any_ids,
        strings,
        strings,
        st.binary(max_size=40),
    ),
    st.builds(
        LogAnswer,
        st.sampled_from(LogCode),
        any_ids,
        strings,
        st.lists(st.binary(max_size=20), max_size=3).map(tuple),
    ),
)
stream_ids = st.integers(1, 0xFFFF_FFFF)
sent = st.one_of(
    st.tuples(on_stream_0, st.just(0), st.just(0)),
    st.tuples(on_stream_0_with_seq, st.just(0), u64),
    st.tuples(on_stream, stream_ids, st.just(0)),
    st.tuples(on_stream_with_seq, stream_ids, u64),
)


@given(st.lists(sent, max_size=5), st.data())
def test_what_is_encoded_is_decoded_however_the_bytes_are_cut(
    messages: list[tuple[Message, int, int]], data: st.DataObject
) -> None:
    stream = b"".join(encode(*one) for one in messages)
    decoder = FrameDecoder()
    got = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += [(decode(frame), frame.stream, frame.seq) for frame in decoder.feed(stream[:size])]
        stream = stream[size:]
    assert got == messages
    assert decoder.buffered_bytes == 0


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_arbitrary_bytes_are_refused_or_waited_for(pieces: list[bytes]) -> None:
    decoder = FrameDecoder()
    refused = False
    for piece in pieces:
        try:
            for frame in decoder.feed(piece):
                decode(frame)
        except ProtocolError:
            refused = True
        else:
            assert not refused, "a broken decoder stays broken"


@given(st.sampled_from(FrameType), st.sampled_from([0, 7]), st.integers(0, 1), st.binary(max_size=300))
def test_arbitrary_payloads_are_decoded_or_refused(
    kind: FrameType, stream: int, seq: int, payload: bytes
) -> None:
    frame = Frame(kind, stream, seq, 0, payload)
    try:
        message = decode(frame)
    except ProtocolError as error:
        assert error.code == ErrorCode.MALFORMED
    else:
        assert message.type == kind


@given(st.sampled_from(GOOD), st.data())
def test_a_golden_frame_with_damage_and_a_right_crc_never_crashes(path: Path, data: st.DataObject) -> None:
    body = bytearray(golden_bytes(path)[8:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = struct.pack("<II", len(body) + 4, zlib.crc32(body)) + bytes(body)
    try:
        read_one(damaged)
    except ProtocolError as error:
        assert error.code == ErrorCode.MALFORMED


def test_frames_before_a_broken_one_are_handed_out() -> None:
    decoder = FrameDecoder()
    got: list[Message] = []
    with pytest.raises(ProtocolError):
        for frame in decoder.feed(encode(Ping()) * 2 + b"\x00" * 24):
            got.append(decode(frame))
    assert got == [Ping(), Ping()]
    with pytest.raises(ProtocolError):
        list(decoder.feed(encode(Ping())))


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (Frame(FrameType.PING, 3), "PING on stream 3"),
        (Frame(FrameType.ADD, 0, 1), "ADD on stream 0"),
        (Frame(FrameType.CREDIT, 3, 1, payload=b"\0" * 4), "CREDIT with seq 1"),
        (Frame(FrameType.ADD, 3, 1, payload=struct.pack("<Iqqq", 1, -1, 0, 0)), "out of range"),
        (Frame(FrameType.ADD, 3, 1, payload=struct.pack("<Iqqq", 1, 0, 2**32, 0)), "out of range"),
        (Frame(FrameType.ADD, 3, 1, payload=struct.pack("<Iqqq", 1, 0, 0, -1)), "out of range"),
        (Frame(FrameType.MARK_DELETE, 3, 1, payload=struct.pack("<qq", 0, -2)), "out of range"),
        (Frame(FrameType.ERROR, 3, 0, payload=b"\1\0\1\0\xff"), "not UTF-8"),
    ],
)
def test_rules_of_single_fields(frame: Frame, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(frame)


def test_unknown_flags_are_refused() -> None:
    with pytest.raises(ProtocolError, match="flags"):
        list(FrameDecoder().feed(encode_frame(Frame(FrameType.PING, flags=1))))


def test_a_frame_that_would_be_too_long_is_not_encoded() -> None:
    with pytest.raises(ProtocolError) as refused:
        encode(Query(b" " * LENGTH_MAX))
    assert refused.value.code == ErrorCode.OVERSIZED


def test_the_longest_frame_passes() -> None:
    query = Query(b" " * (LENGTH_MAX - 20))
    assert read_one(encode(query))[1] == query


def test_a_due_frame_of_the_most_records_stays_below_the_cut() -> None:
    column = np.arange(RECORDS_MAX, dtype=np.int64)
    assert len(encode(Due(Entries(column, column, column)), 1)) <= 1024 * 1024 + 64


@pytest.mark.parametrize("cut_bytes", [20_000, 100_000])
def test_sets_are_cut_into_parts_that_make_up_the_whole(cut_bytes: int) -> None:
    scattered = BitMap(range(0, 2_000_000, 3))
    whole = PositionSet.of_bitmaps(
        {1: scattered, 2: BitMap([7]), 9: BitMap([0, 4_294_967_295]), 11: scattered}
    )
    parts = list(split_positions(whole, cut_bytes))
    assert max(len(part.serialize()) for part in parts) <= cut_bytes + 100
    together = PositionSet()
    for part in parts:
        assert part.isdisjoint(together)
        together.update(part)
    assert together == whole
    assert list(split_positions(PositionSet())) == []
