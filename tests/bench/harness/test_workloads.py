"""Workloads: the same for the same seed, in the shape that their title says; traces good and bad."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.harness import workloads
from bench.harness.errors import BenchError
from bench.harness.workloads import DAY_MS, HOUR_MS, LEVELS_MS, MINUTE_MS, SHAPES, START_MS, YEAR_MS, Workload

COUNT = 20_000


@pytest.mark.parametrize("name", SHAPES)
def test_a_seeded_workload_is_the_same_again_and_another_with_another_seed(name: str) -> None:
    once, again, other = (workloads.seeded(name, COUNT, seed) for seed in (3, 3, 4))
    assert np.array_equal(once.deliver_after_ms, again.deliver_after_ms)
    assert np.array_equal(once.arrive_ms, again.arrive_ms)
    assert not np.array_equal(once.deliver_after_ms, other.deliver_after_ms)


@pytest.mark.parametrize("name", SHAPES)
def test_every_workload_is_in_order_of_arrival_with_no_delay_below_zero(name: str) -> None:
    made = workloads.seeded(name, COUNT, 1)
    assert len(made) == COUNT
    assert int(made.arrive_ms[0]) == 0
    assert (np.diff(made.arrive_ms) >= 0).all()
    assert (made.deliver_after_ms >= 0).all()


def test_the_shapes_are_what_their_titles_say() -> None:
    delays = {name: workloads.seeded(name, COUNT, 1).deliver_after_ms for name in SHAPES}
    quarters = np.histogram(delays["uniform"], bins=4, range=(0, DAY_MS))[0]
    assert quarters.sum() == COUNT
    assert quarters.min() > COUNT * 0.23
    assert set(delays["levels"].tolist()) == set(LEVELS_MS)
    assert np.abs(delays["orders"] - 30 * MINUTE_MS).max() <= 30_000
    just_after = delays["hourly"] % HOUR_MS < 1_000
    assert 0.8 < just_after.mean() < 0.95
    assert set((delays["hourly"][just_after] // HOUR_MS).tolist()) >= set(range(1, 24))
    tail = delays["tail"]
    assert tail.max() < YEAR_MS
    assert (tail < MINUTE_MS).mean() == pytest.approx((tail > 6 * DAY_MS).mean(), rel=0.1)


def test_positions_count_up_as_a_topics_and_tell_which_entry_it_is() -> None:
    entries = workloads.seeded("uniform", 120_000, 1).entries()
    assert (entries.ledger_id[0], entries.entry_id[0]) == (1, 0)
    assert (entries.ledger_id[-1], entries.entry_id[-1]) == (3, 19_999)
    assert np.array_equal(workloads.sequences(entries), np.arange(120_000))


def test_orders_are_due_after_they_have_arrived() -> None:
    made = workloads.seeded("orders", 100, 1)
    entries = made.entries()
    assert int(entries.deliver_at_ms[0]) == START_MS + int(made.deliver_after_ms[0])
    assert np.array_equal(entries.deliver_at_ms - made.arrive_at_ms(), made.deliver_after_ms)
    assert int(made.arrive_ms[-1]) == HOUR_MS * 99 // 100


def read(tmp_path: Path, text: str, name: str = "trace.csv") -> Workload:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return workloads.from_trace(path)


def test_a_trace_of_delays_alone_arrives_at_once(tmp_path: Path) -> None:
    made = read(tmp_path, "deliver_after_ms\n5\n0\n70000\n")
    assert made.deliver_after_ms.tolist() == [5, 0, 70_000]
    assert made.arrive_ms.tolist() == [0, 0, 0]
    assert made.name == "trace"


def test_a_trace_is_brought_into_order_of_arrival_from_zero(tmp_path: Path) -> None:
    made = read(tmp_path, "deliver_after_ms,arrive_ms\n5,1700000000500\n6,1700000000000\n7,1700000000500\n")
    assert made.arrive_ms.tolist() == [0, 500, 500]
    assert made.deliver_after_ms.tolist() == [6, 5, 7]


def test_the_columns_of_a_trace_may_be_the_other_way_round(tmp_path: Path) -> None:
    made = read(tmp_path, "arrive_ms, deliver_after_ms\n10,1\n20,2\n")
    assert made.deliver_after_ms.tolist() == [1, 2]


def test_an_npy_trace_is_a_structured_array(tmp_path: Path) -> None:
    table = np.array([(5, 100), (6, 50)], dtype=[("deliver_after_ms", "<i4"), ("arrive_ms", "<u8")])
    np.save(tmp_path / "trace.npy", table)
    made = workloads.from_trace(tmp_path / "trace.npy")
    assert made.deliver_after_ms.tolist() == [6, 5]
    assert made.arrive_ms.tolist() == [0, 50]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must begin with the columns"),
        ("delay\n1\n", "must begin with the columns"),
        ("1\n2\n", "must begin with the columns"),
        ("deliver_after_ms\n", "has no messages"),
        ("deliver_after_ms\n1\nsoon\n", "whole numbers a line"),
        ("deliver_after_ms\n1.5\n", "whole numbers a line"),
        ("deliver_after_ms,arrive_ms\n1,2\n3\n", "2 whole numbers a line"),
        ("deliver_after_ms\n1,2\n", "has 2 numbers a line, its header names 1"),
        ("deliver_after_ms\n1\n-1\n", "message 2 .* has deliver_after_ms -1"),
        ("deliver_after_ms\n99999999999999999999\n", "whole numbers a line"),
        ("deliver_after_ms\n4000000000000\n", "must be 0 … "),
        ("deliver_after_ms,arrive_ms\n1,0\n1,9000000000000\n", "is arrive_ms in ms"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt:UserWarning")
def test_a_bad_trace_is_one_line_that_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BenchError, match=says) as raised:
        read(tmp_path, text)
    assert "\n" not in str(raised.value)
    assert "trace.csv" in str(raised.value)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (np.arange(3), "structured array"),
        (np.array([(1.5,)], dtype=[("deliver_after_ms", "f8")]), "must be of integers"),
        (np.array([(1,)], dtype=[("delay", "i8")]), "must begin with the columns"),
    ],
)
def test_a_bad_npy_trace_is_refused(tmp_path: Path, table: np.ndarray, says: str) -> None:
    np.save(tmp_path / "trace.npy", table)
    with pytest.raises(BenchError, match=says):
        workloads.from_trace(tmp_path / "trace.npy")


def test_what_is_no_trace_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot be read"):
        workloads.from_trace(tmp_path / "absent.csv")
    with pytest.raises(BenchError, match="cannot be read"):
        workloads.from_trace(tmp_path / "absent.npy")
    with pytest.raises(BenchError, match=r"\.csv or \.npy"):
        workloads.from_trace(tmp_path / "trace.txt")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(BenchError, match="not an NPY file"):
        workloads.from_trace(tmp_path / "torn.npy")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BenchError, match="not a text file"):
        workloads.from_trace(tmp_path / "binary.csv")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(BenchError, match="not an NPY file"):
        workloads.from_trace(tmp_path / "objects.npy")
