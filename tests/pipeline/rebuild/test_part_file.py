"""Parts: any span of time out of them is what it would be out of the entries themselves."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.index import Entries, sort_entries
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.rebuild.part_file import BLOCK_ENTRIES, encode_part, read_span


def entries(times: list[int]) -> Entries:
    ids = np.arange(len(times), dtype=np.int64)
    return sort_entries(Entries(np.array(times, np.int64), np.full(len(times), 7, np.int64), ids))


class Counted(io.BytesIO):
    """Knows how much of it was read."""

    bytes_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Count."""
        data = super().read(size)
        self.bytes_read += len(data)
        return data


@settings(deadline=None)
@given(st.lists(st.integers(0, 20), max_size=60), st.integers(-1, 21), st.integers(-1, 21))
def test_a_span_is_what_is_due_in_it(times: list[int], low_ms: int, high_ms: int) -> None:
    made = entries(times)
    packed = encode_part(made, block_entries=4)
    found = read_span(io.BytesIO(packed), "part", low_ms, high_ms)
    due = made.deliver_at_ms
    assert found == made.take((due >= low_ms) & (due <= high_ms))
    assert read_span(io.BytesIO(packed), "part") == made


def test_of_a_large_part_only_what_is_asked_for_is_read() -> None:
    """Its directory is longer than what is read first."""
    made = entries(list(range(20_000)))
    packed = encode_part(made, block_entries=16)
    file = Counted(packed)
    assert read_span(file, "part", 5_000, 5_010).deliver_at_ms.tolist() == list(range(5_000, 5_011))
    assert file.bytes_read < len(packed) / 2
    assert len(encode_part(made)) < 4 * len(made)
    assert len(made) > BLOCK_ENTRIES


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:3],
        lambda data: data[:-1],
        lambda data: data[5:],
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: data[:-4] + b"\xff\xff\xff\xff",
        lambda data: data[:-4] + b"\x00\x00\x01\x00",
        lambda data: data[:-20] + bytes(16) + data[-4:],
    ],
)
def test_a_damaged_part_is_told_of(damage: object) -> None:
    packed = encode_part(entries(list(range(100))), block_entries=16)
    with pytest.raises(PipelineError, match=r"the part is damaged: .*; start the job again"):
        read_span(io.BytesIO(damage(packed)), "the part")  # type: ignore[operator]
