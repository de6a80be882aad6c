"""Every peer that needs no server, against a sorted list: nothing early, all of it, in promised order."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bench.harness import workloads
from bench.harness.errors import BenchError
from bench.harness.workloads import DAY_MS, HOUR_MS, LEVELS_MS, MINUTE_MS, START_MS
from bench.peers import ours, roster
from bench.peers.base import Peer
from bench.peers.levels import levels_of, rounded_up_ms
from bench.peers.records import Appenders, dealt, read_rows
from bench.peers.wheel_file import wheels_of
from bench.peers.worker import Tally, clock_times
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.entries.sort import sort_entries
from tidegate.plugin.daemon.serve import index_options
from tidegate.plugin.daemon.settings import Settings

ORDERED = ("tidegate", "rocksdb", "heapq", "heapdict")
SLOTTED = ("qmq", "wheel-file")
LOCAL = (*ORDERED, *SLOTTED, "levels")
LIMIT = 300


def opened(name: str, folder: Path, now_ms: int = START_MS) -> tuple[Peer, ManualClock]:
    clock = ManualClock(now_ms)
    return roster.peer_class(name)(folder, clock), clock


def spread(count: int, over_ms: int, seed: int, first: int = 0) -> Entries:
    generator = np.random.default_rng(seed)
    ledger_id, entry_id = workloads.positions(np.arange(first, first + count, dtype=np.int64))
    return Entries(START_MS + generator.integers(0, over_ms, count), ledger_id, entry_id)


def add(peer: Peer, entries: Entries, arrive_at_ms: int = START_MS) -> None:
    peer.add(entries, np.full(len(entries), arrive_at_ms, dtype=np.int64))
    peer.maintain()


def pop_all(peer: Peer, now_ms: int) -> Entries:
    """All that the peer hands out now."""
    parts = []
    while len(popped := peer.pop_due(now_ms, LIMIT)):
        assert len(popped) <= LIMIT
        assert int(popped.deliver_at_ms.max()) <= now_ms
        peer.done(popped)
        parts.append(popped)
    peer.maintain()
    return Entries.concat(parts)


def test_the_roster_has_a_launcher_for_every_name() -> None:
    assert [roster.launcher(name).info.name for name in roster.NAMES] == list(roster.NAMES)


@pytest.mark.parametrize("name", LOCAL)
def test_everything_comes_out_once_and_never_early(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    entries = spread(3_000, 3 * HOUR_MS, seed=1)
    add(peer, entries.part(0, 2_000))
    add(peer, entries.part(2_000, 3_000))
    assert peer.count() == 3_000
    parts = []
    end_ms = START_MS + 3 * HOUR_MS + peer.info.slack_ms
    for now_ms in [*range(START_MS, end_ms, 7 * MINUTE_MS), end_ms]:
        clock.set_ms(now_ms)
        parts.append(pop_all(peer, now_ms))
        out = sum(map(len, parts))
        assert peer.count() == 3_000 - out
        assert out >= int((entries.deliver_at_ms + peer.info.slack_ms <= now_ms).sum())
    together = Entries.concat(parts)
    if name in ORDERED:
        assert together == sort_entries(entries)
    assert sort_entries(together) == sort_entries(entries)
    peer.close()


@pytest.mark.parametrize("name", SLOTTED)
def test_a_wheel_is_in_order_from_slot_to_slot(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    add(peer, spread(2_000, 20 * MINUTE_MS, seed=2))
    clock.set_ms(START_MS + HOUR_MS)
    times = pop_all(peer, START_MS + HOUR_MS).deliver_at_ms
    behind_ms = np.maximum.accumulate(times) - times
    assert 0 < behind_ms.max() <= peer.info.tick_ms
    peer.close()


@pytest.mark.parametrize("name", LOCAL)
def test_what_is_added_while_others_are_handed_out_takes_its_place(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    add(peer, spread(500, 2 * HOUR_MS, seed=3))
    now_ms = START_MS + HOUR_MS
    clock.set_ms(now_ms)
    first = pop_all(peer, now_ms)
    assert len(first)
    ledger_id, entry_id = workloads.positions(np.arange(500, 600, dtype=np.int64))
    overdue = Entries(np.full(100, now_ms - MINUTE_MS), ledger_id, entry_id)
    add(peer, overdue, arrive_at_ms=now_ms)
    soon_ms = now_ms + 5_000  # a level's shortest delay, a wheel's tick
    clock.set_ms(soon_ms)
    second = pop_all(peer, soon_ms)
    assert set(workloads.sequences(overdue).tolist()) <= set(workloads.sequences(second).tolist())
    end_ms = START_MS + 2 * HOUR_MS + peer.info.slack_ms
    clock.set_ms(end_ms)
    assert len(first) + len(second) + len(pop_all(peer, end_ms)) == 600
    assert peer.count() == 0
    peer.close()


@pytest.mark.parametrize("name", [name for name in LOCAL if roster.launcher(name).info.tick_ms == 0])
def test_who_waits_for_the_earliest_entry_knows_when_that_is(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    assert peer.next_due_ms() is None
    add(peer, Entries.of([(START_MS + 700, 1, 0), (START_MS + 300, 1, 1)]))
    assert peer.next_due_ms() == START_MS + 300
    clock.set_ms(START_MS + 300)
    assert len(pop_all(peer, START_MS + 300)) == 1
    assert peer.next_due_ms() == START_MS + 700
    peer.close()


@pytest.mark.parametrize("name", [name for name in LOCAL if roster.launcher(name).info.survives_kill])
def test_a_peer_closed_and_opened_again_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    entries = spread(1_000, 2 * HOUR_MS, seed=4)
    add(peer, entries)
    now_ms = START_MS + 50 * MINUTE_MS
    clock.set_ms(now_ms)
    before = pop_all(peer, now_ms)
    peer.flush()
    peer.close()
    again, clock = opened(name, tmp_path, now_ms)
    assert again.count() == 1_000 - len(before)
    end_ms = START_MS + 2 * HOUR_MS + again.info.slack_ms
    clock.set_ms(end_ms)
    after = pop_all(again, end_ms)
    assert sort_entries(Entries.concat([before, after])) == sort_entries(entries)
    again.close()


@pytest.mark.parametrize("name", [name for name in LOCAL if roster.launcher(name).info.survives_kill])
def test_settling_loses_nothing(name: str, tmp_path: Path) -> None:
    peer, clock = opened(name, tmp_path)
    add(peer, spread(500, HOUR_MS, seed=5))
    peer.settle()
    clock.set_ms(START_MS + 3 * HOUR_MS)
    assert len(pop_all(peer, START_MS + 3 * HOUR_MS)) == 500
    peer.close()


# ---- the schemes themselves


def test_our_options_are_the_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEGATE_")]:
        monkeypatch.delenv(name)
    assert index_options(Settings(data=tmp_path)) == ours.OPTIONS


def test_a_delay_takes_the_level_that_is_not_shorter() -> None:
    delays = np.array([0, 1, 1_000, 1_001, 2 * HOUR_MS - 1, 2 * HOUR_MS, DAY_MS], dtype=np.int64)
    assert [LEVELS_MS[level] for level in levels_of(delays)] == [
        1_000, 1_000, 1_000, 5_000, 2 * HOUR_MS, 2 * HOUR_MS, 2 * HOUR_MS,
    ]  # fmt: skip


def test_the_rounding_of_long_delays_is_that_of_what_is_left_after_whole_turns() -> None:
    exact = np.array([*LEVELS_MS, 4 * HOUR_MS, 2 * HOUR_MS + 5_000], dtype=np.int64)
    assert not rounded_up_ms(exact).any()
    assert rounded_up_ms(np.array([3 * HOUR_MS + 1], dtype=np.int64)).tolist() == [HOUR_MS - 1]


def test_levels_hand_out_at_the_rounded_time_even_through_many_turns(tmp_path: Path) -> None:
    peer, clock = opened("levels", tmp_path)
    due_ms = START_MS + 5 * HOUR_MS + 20_000  # two turns, then 1 h 0 min 20 s takes the level of 2 h
    add(peer, Entries.of([(due_ms, 1, 0)]))
    at_ms = due_ms + int(rounded_up_ms(np.array([due_ms - START_MS], dtype=np.int64))[0])
    assert at_ms == START_MS + 6 * HOUR_MS
    clock.set_ms(at_ms - 1)
    assert not len(pop_all(peer, at_ms - 1))
    clock.set_ms(at_ms)
    assert len(pop_all(peer, at_ms)) == 1
    assert peer.remarks() == {
        "rounded up by, median (s)": (at_ms - due_ms) / 1e3,
        "rounded up by, max (s)": (at_ms - due_ms) / 1e3,
    }
    peer.close()


def test_a_coarse_slot_that_has_begun_is_never_chosen() -> None:
    now_ms = START_MS + 90_000
    times = np.array([now_ms, now_ms + 59_999, now_ms + MINUTE_MS, now_ms + HOUR_MS, now_ms + DAY_MS])
    assert wheels_of(times.astype(np.int64), now_ms).tolist() == [0, 0, 1, 2, 3]
    for delay_ms in range(0, 3 * DAY_MS, 977_777):
        wheel = int(wheels_of(np.array([now_ms + delay_ms], dtype=np.int64), now_ms)[0])
        width_ms = (1_000, MINUTE_MS, HOUR_MS, DAY_MS)[wheel]
        assert wheel == 0 or (now_ms + delay_ms) // width_ms * width_ms > now_ms


def test_the_hour_files_of_the_wheel_go_when_the_hour_is_over_and_handed_out(tmp_path: Path) -> None:
    peer, clock = opened("qmq", tmp_path)
    add(peer, spread(400, 2 * HOUR_MS, seed=6))
    assert len(list(tmp_path.glob("*.schedule"))) == 2
    for now_ms in (START_MS + HOUR_MS - 1, START_MS + HOUR_MS + MINUTE_MS):
        clock.set_ms(now_ms)
        pop_all(peer, now_ms)
    assert len(list(tmp_path.glob("*.schedule"))) == 1
    assert len(list(tmp_path.glob("*.dispatch"))) == 1
    peer.close()


def test_a_torn_record_at_the_end_of_a_file_is_not_read(tmp_path: Path) -> None:
    path = str(tmp_path / "records")
    files = Appenders()
    files.append(path, np.arange(6, dtype="<i8").tobytes())
    files.append(path, b"torn")
    assert read_rows(path, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    files.remove(path)
    files.remove(path)
    assert not list(tmp_path.iterdir())


def test_dealing_gives_every_place_to_its_key_in_order() -> None:
    keys = np.array([7, 3, 7, 3, 9], dtype=np.int64)
    assert [(key, places.tolist()) for key, places in dealt(keys)] == [(3, [1, 3]), (7, [0, 2]), (9, [4])]
    assert not list(dealt(keys[:0]))


# ---- what the worker counts


def test_the_tally_counts_the_early_the_disordered_and_the_repeated() -> None:
    deliver_at_ms = np.array([10, 20, 30, 40], dtype=np.int64)
    tally = Tally(deliver_at_ms, already=np.array([0], dtype=np.int64))
    tally.count(Entries.of([(20, 1, 1), (10, 1, 0), (30, 1, 2)]), now_ms=25)
    tally.count(Entries.of([(20, 1, 1)]), now_ms=50)
    assert tally.early == 1
    assert tally.out_of_order == 2
    assert tally.times.tolist() == [2, 2, 1, 0]


@pytest.mark.parametrize(
    ("row", "says"), [((10, 1, 4), "never added"), ((11, 1, 0), "another deliver_at_ms")]
)
def test_the_tally_refuses_what_was_never_added(row: tuple[int, int, int], says: str) -> None:
    tally = Tally(np.array([10], dtype=np.int64), already=np.zeros(0, dtype=np.int64))
    with pytest.raises(BenchError, match=says):
        tally.count(Entries.of([row]), now_ms=50)


def test_the_clock_goes_to_every_batch_the_end_and_through_the_slack() -> None:
    times = list(clock_times(np.arange(25_000, dtype=np.int64)[::-1], slack_ms=800))
    assert times[:3] == [9_999, 19_999, 24_999]
    assert times[3:] == list(range(25_099, 25_800, 100))
    assert list(clock_times(np.array([5], dtype=np.int64), slack_ms=0)) == [5]
