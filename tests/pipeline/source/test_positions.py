"""Offsets of a stream: batches of a limit come to the end, each entry in one of them."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from tidegate.pipeline.source import positions
from tidegate.pipeline.topic.names import TopicName
from tidegate.pipeline.topic.plan import Planned
from tidegate.pipeline.topic.ranges import Ledger, Position
from tidegate.pipeline.topic.state import TopicState

TOPIC = TopicName.parse("persistent://public/default/orders")


def planned(partition: int, sizes: list[int]) -> Planned:
    """A partition whose ledgers have so many entries, the last one open."""
    ledgers = [Ledger(10 * number + partition, size) for number, size in enumerate(sizes, 1)]
    filled = [one for one in ledgers if one.entries]
    end = Position(filled[-1].ledger_id, filled[-1].entries - 1) if filled else None
    state = TopicState(TOPIC, tuple(ledgers), Position(-1, -1) if end is None else end, {})
    return Planned(state, partition, end)


def entries(
    found: list[Planned], start: positions.Offset, end: positions.Offset
) -> list[tuple[int, int, int]]:
    return [
        (one.partition, each.ledger.ledger_id, entry_id)
        for one in found
        for each in positions.between(one, start, end)
        for entry_id in range(each.first, each.last + 1)
    ]


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=5), min_size=1, max_size=4),
    st.integers(1, 40),
)
def test_limited_batches_come_to_the_end(sizes: list[list[int]], limit: int) -> None:
    found = [planned(partition, of_one) for partition, of_one in enumerate(sizes)]
    at, target = positions.earliest(found), positions.latest(found)
    everything = entries(found, at, target)
    seen: list[tuple[int, int, int]] = []
    for _ in range(len(everything) + 1):
        end = positions.limited(found, at, target, limit)
        if end == at:
            break
        batch = entries(found, at, end)
        assert len(batch) < limit + len(found)
        seen += batch
        at = end
    assert at == target
    assert sorted(seen) == sorted(everything)


def test_a_batch_up_to_the_end_of_a_ledger_begins_the_next_one() -> None:
    """A ledger that was read whole may be trimmed before the next batch."""
    found = [planned(0, [5, 5, 5])]
    at, target = positions.earliest(found), positions.latest(found)
    first = positions.limited(found, at, target, 5)
    assert first == {"0": "20:0"}
    whole = found[0].state
    trimmed = Planned(dataclasses.replace(whole, ledgers=whole.ledgers[1:]), 0, found[0].end)
    assert len(entries([trimmed], first, target)) == 10
