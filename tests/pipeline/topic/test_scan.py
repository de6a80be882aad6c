"""Many entries looked at together: the same as each by itself, whatever is in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.pipeline.entries import entry
from tidegate.pipeline.errors import WireError
from tidegate.pipeline.topic.bookie_frames import Payloads
from tidegate.pipeline.topic.entry import is_marker, is_transactional, parse_entry
from tidegate.pipeline.topic.scan import scan

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
UNSIGNED = st.integers(0, (1 << 64) - 1)
SMALL = st.integers(-(1 << 31), (1 << 31) - 1)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "producer_name": st.text(max_size=200),
        "publish_time": UNSIGNED,
        "partition_key": st.text(max_size=5),
        "uncompressed_size": st.integers(0, (1 << 32) - 1),
        "deliver_at_time": NUMBERS,
        "marker_type": SMALL,
        "txnid_least_bits": UNSIGNED,
        "txnid_most_bits": UNSIGNED,
        "null_partition_key": st.booleans(),
    },
)
UNKNOWN = st.sampled_from(
    [b"", b"\xf9\x07" + bytes(8), b"\xfd\x07" + bytes(4), b"\x9a\x01\x02ab", b"\x22\x00"]
)
BROKER = b"\x0e\x02\x00\x00\x00\x04\x08\x01\x10\x02"


@st.composite
def stored(draw: st.DrawFn) -> bytes:
    """An entry as some client, through some broker, has written it."""
    fields: dict[str, Any] = draw(FIELDS)
    data = entry(draw(st.binary(max_size=20)), checksum=False, **fields)
    size = int.from_bytes(data[:4], "big")
    more = draw(UNKNOWN)
    data = (size + len(more)).to_bytes(4, "big") + data[4 : 4 + size] + more + data[4 + size :]
    if draw(st.booleans()):
        data = b"\x0e\x01" + bytes(4) + data
        if draw(st.booleans()):
            data = BROKER + data
    return data


def alone(at: int, payload: bytes) -> tuple[int, bool, bool]:
    metadata = parse_entry(at, payload, checked=True).metadata
    return metadata.deliver_at_time, is_marker(metadata), is_transactional(metadata)


def together(payloads: list[bytes]) -> list[tuple[int, bool, bool]]:
    return list(zip(*(column.tolist() for column in scan(0, Payloads.of(payloads))), strict=True))


@settings(deadline=None)
@given(st.lists(stored(), max_size=12))
@example([b"\x00\x00\x00\x04\x0a\x00\x18\x00"])
def test_as_each_by_itself(payloads: list[bytes]) -> None:
    assert together(payloads) == [alone(at, payload) for at, payload in enumerate(payloads)]


@settings(deadline=None)
@given(st.lists(stored(), min_size=1, max_size=5), st.data())
def test_damaged_bytes_are_an_error_or_what_one_alone_says(
    payloads: list[bytes], data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(payloads) - 1))
    whole = payloads[which]
    at = data.draw(st.integers(0, len(whole)))
    cut = (
        whole[:at]
        if data.draw(st.booleans())
        else whole[:at] + data.draw(st.binary(max_size=4)) + whole[at + 1 :]
    )
    payloads[which] = cut
    try:
        expected = [alone(number, payload) for number, payload in enumerate(payloads)]
    except WireError:
        return
    assert together(payloads) == expected


def test_what_is_none_of_pulsars() -> None:
    good = entry(deliver_at_time=5)
    for bad in (b"", b"short", good[:12], b"\x0e\x01" + bytes(4) + b"\xff\xff\xff\xff" + good[10:]):
        with pytest.raises(WireError, match="entry 8 "):
            scan(7, Payloads.of([good, bad]))


def test_none_at_all() -> None:
    assert [len(one) for one in scan(0, Payloads.of([]))] == [0, 0, 0]
    assert scan(0, Payloads.of([])).deliver_at_ms.dtype == np.int64
