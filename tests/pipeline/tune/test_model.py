"""The model of slice widths: spills, slices, predictions, and what the real index says to them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.index import ENTRY_BYTES, WIDTHS_MS, IndexOptions
from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.tune.calibrate import Played, Trace, calibrate
from tidegate.pipeline.tune.model import Costs, begins, passes, predict, recommend
from tidegate.pipeline.tune.options import parse_delays
from tidegate.pipeline.tune.slices import Filled, History, Time, follow, history
from tidegate.pipeline.tune.spills import GROUP_COMMIT_MS, arrivals_of, find_spills, records_in
from tidegate.pipeline.tune.trial import INDEX, Opened, Setting, Trial, run_trials
from tidegate.plugin.shared.durations import duration

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COSTS = Costs(
    1e-4, 1e-7, 1e-4, 1e-6, 1e-4, 1e-8, 1e-8, 0.01, 5e-6, 5e-6, 4e-5, 1e-7, 3e-9, 250, 4, 10, 500, 0.1
)


def spills(arrival_ms: list[int], delay_ms: list[int], **options: int) -> tuple[list[float], int]:
    """(when the index spills, the most entries in staging), times since the first arrival."""
    chosen = IndexOptions(**options)  # type: ignore[arg-type]
    arrival = np.array(arrival_ms, np.int64) + START_MS
    due = arrival + np.array(delay_ms, np.int64)
    arrivals = arrivals_of(arrival, due, START_MS, 1_000, chosen)
    found = find_spills(START_MS, 1_000, arrivals, chosen)
    return [round(one - START_MS, 3) for one in found.at_ms.tolist()], found.staged_max


class TestSpills:
    def test_by_age(self) -> None:
        at, staged = spills([0, 1_000, 2_000, 9_000], [HOUR_MS] * 4, persist_age_ms=5_000)
        assert at == [5_000]
        assert staged == 3

    def test_by_budget(self) -> None:
        at, staged = spills(
            [number * 1_000 for number in range(10)], [HOUR_MS] * 10, staging_budget_bytes=4 * ENTRY_BYTES
        )
        assert len(at) == 2
        assert staged == 4

    def test_in_one_instant(self) -> None:
        at, _ = spills([0] * 100, [HOUR_MS] * 100, staging_budget_bytes=30 * ENTRY_BYTES)
        assert len(at) == 3
        assert at == sorted(at) and at[-1] <= 1_000

    def test_what_is_due_soon_leaves_staging(self) -> None:
        arrivals = [number * 1_000 for number in range(60)]
        at, staged = spills(arrivals, [2_000] * 60, staging_budget_bytes=10 * ENTRY_BYTES)
        assert at == []
        assert staged <= 3


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 11)), min_size=1, max_size=80),
    st.integers(2, 9),
)
def test_slices_do_what_the_index_does(filled: list[tuple[int, int]], merge_runs: int) -> None:
    """Against a plain reading: each slice a list of runs, spill by spill."""
    options = IndexOptions(merge_runs=merge_runs, block_entries=3)
    width_ms, count = 1_000, 12
    at_ms = np.arange(1, count + 1, dtype=np.float64) * 2_500
    number, spill = np.array(filled, np.int64).T
    # Nothing is spilled into a slice that is over.
    spill = np.minimum(spill, np.searchsorted(at_ms, (number + 1) * width_ms) % count)
    found = history(number * width_ms + 5, spill, width_ms)
    result = follow(found, width_ms, at_ms, options)
    assert result.spilled == len(filled)
    assert result.pairs == len(set(zip(number.tolist(), spill.tolist(), strict=True)))

    def blocks(entries: int) -> int:
        return -(-entries // 3)

    runs: dict[int, list[int]] = defaultdict(list)
    stored_blocks, stored_entries, written, fullest = [], [], 0, 0
    for now in range(count):
        for each in sorted(set(number.tolist())):
            size = int(((number == each) & (spill == now)).sum())
            if size:
                runs[each].append(size)
                written += blocks(size)
            fullest = max(fullest, sum(runs[each]))
            if not ((number == each) & (spill > now)).any() and at_ms[now] >= (each + 1) * width_ms:
                runs[each] = []
        stored_blocks.append(sum(blocks(run) for each in runs.values() for run in each))
        stored_entries.append(sum(map(sum, runs.values())))
        # Then there is time until the next spill.
        for each, before in runs.items():
            sizes = list(before)
            while len(sizes) >= merge_runs:
                sizes.sort()
                merged = len(sizes)
                for place in range(2, len(sizes)):
                    if sizes[place] > 2 * sum(sizes[:place]):
                        merged = place
                        break
                sizes = [*sizes[merged:], sum(sizes[:merged])]
                written += blocks(sizes[-1])
            runs[each] = sizes
    assert np.cumsum(result.changes.entries)[:count].tolist() == stored_entries[:count]
    assert np.cumsum(result.changes.blocks)[:count].tolist() == stored_blocks[:count]
    assert result.changes.blocks_written.sum() == written
    assert result.fullest.entries == fullest


class TestCompactionsInARush:
    """Forty spills into ten slices, a thousand entries each."""

    def follow(self, apart_ms: int, time: Time | None, slices: int = 10) -> Filled:
        options = IndexOptions()
        spill = np.repeat(np.arange(40), slices)
        number = np.tile(np.arange(slices), 40)
        found = History(np.sort(number), spill.reshape(40, slices).T.ravel(), np.full(len(spill), 1_000))
        return follow(found, 1 << 40, np.arange(40, dtype=np.float64) * apart_ms, options, time)

    def most_blocks(self, *arguments: Any) -> float:
        return float(np.cumsum(self.follow(*arguments).changes.blocks)[:40].max())

    def test_with_time_there_are_never_more_runs_than_the_index_compacts_at(self) -> None:
        assert self.most_blocks(0, None) == 10 * IndexOptions().merge_runs
        cheap = Time(write_block_s=1e-6, write_entry_s=0)
        assert self.most_blocks(60_000, cheap) == 10 * IndexOptions().merge_runs

    def test_without_it_runs_pile_up_and_fewer_entries_are_written_again(self) -> None:
        dear = Time(write_block_s=0, write_entry_s=1e-3)
        rushed, relaxed = self.follow(1, dear), self.follow(0, None)
        most = self.most_blocks(1, dear)
        assert 10 * IndexOptions().merge_runs < most < 10 * 40
        assert rushed.changes.entries_written[:40].sum() < 0.7 * relaxed.changes.entries_written[:40].sum()
        # The rest catches up after the rush.
        assert rushed.changes.blocks.sum() == relaxed.changes.blocks.sum() == 0
        assert rushed.fullest.runs < IndexOptions().merge_runs

    def test_a_part_of_the_slices_with_its_part_of_the_time_stands_for_all(self) -> None:
        whole, part = Time(0, 1e-4), Time(0, 1e-4, share=0.5)
        for apart_ms in (500, 2_000, 3_000):
            most = self.most_blocks(apart_ms, whole, 10)
            assert most == pytest.approx(2 * self.most_blocks(apart_ms, part, 5), rel=0.1)


def test_no_slices() -> None:
    none = np.zeros(0, np.int64)
    assert follow(History(none, none, none), 1_000, np.zeros(0), IndexOptions()).spilled == 0


def uniform(entries: int, over_ms: int, delay_ms: int, seed: int = 1) -> Trace:
    draw = np.random.default_rng(seed)
    arrival = np.sort(draw.integers(0, over_ms, entries)) + START_MS
    return Trace(arrival, arrival + draw.integers(1_000, delay_ms, entries))


def recommended(trace: Trace, **options: int) -> int:
    index = IndexOptions(**options)  # type: ignore[arg-type]
    played = Played(trace, index)
    return recommend([predict(played.activity(width), COSTS, index) for width in WIDTHS_MS], index).width_ms


def test_more_traffic_wants_narrower_slices() -> None:
    quiet = recommended(uniform(2_000, 24 * HOUR_MS, 7 * 24 * HOUR_MS))
    busy = recommended(uniform(200_000, HOUR_MS, 24 * HOUR_MS), staging_budget_bytes=1 << 20)
    assert busy < quiet


def test_a_trace_of_which_nothing_is_spilled_decides_nothing() -> None:
    index = IndexOptions()
    played = Played(uniform(100, 1_000, 24 * HOUR_MS), index)
    found = recommend([predict(played.activity(width), COSTS, index) for width in WIDTHS_MS], index)
    assert found.width_ms == index.slice_width_ms
    assert "take a longer trace" in found.reason


def test_the_recommendation_has_a_reason() -> None:
    index = IndexOptions()
    played = Played(uniform(20_000, 4 * HOUR_MS, 24 * HOUR_MS), index)
    reason = recommend([predict(played.activity(width), COSTS, index) for width in WIDTHS_MS], index).reason
    assert "a spill puts about" in reason


def test_of_widths_that_cost_alike_the_narrowest_is_recommended() -> None:
    """Delays of a day: a slice of a day has all of them, and a wider one is no gain."""
    index = IndexOptions()
    played = Played(uniform(20_000, 2 * HOUR_MS, 24 * HOUR_MS), index)
    found = recommend([predict(played.activity(width), COSTS, index) for width in WIDTHS_MS], index)
    assert found.width_ms <= 48 * HOUR_MS
    assert f"any width from {duration(found.width_ms)} to 30d will do" in found.reason


def test_the_real_index_does_what_the_model_says(tmp_path: Path) -> None:
    """Blocks and bytes at two widths: the model knows no more than times and what a block costs."""
    trace = uniform(20_000, 2 * HOUR_MS, 12 * HOUR_MS)
    settings = [Setting(width_ms=width_ms, staging_bytes=1 << 20) for width_ms in (HOUR_MS, 6 * HOUR_MS)]
    trials = [Trial(str(one.width_ms), one, *trace) for one in settings]
    for setting, measured in zip(settings, run_trials(tmp_path, trials), strict=True):
        done = Played(trace, setting.options()).activity(setting.width_ms)
        assert measured.blocks == pytest.approx(done.blocks_max, rel=0.3)
        assert measured.spills == pytest.approx(done.spills, abs=6)
        assert measured.held > 0 and measured.recovery_ms > 0


def test_what_a_killed_index_has(tmp_path: Path) -> None:
    """The real one is opened again: blocks, slices and journal records are what the model counts."""
    trace = uniform(20_000, HOUR_MS, 6 * HOUR_MS)
    settings = [Setting(width_ms=width_ms, staging_bytes=1 << 16) for width_ms in (HOUR_MS // 6, HOUR_MS)]
    run_trials(tmp_path, [Trial(str(one.width_ms), one, *trace) for one in settings])
    for setting in settings:
        opened = Opened.open(tmp_path / str(setting.width_ms) / INDEX, setting, int(trace.arrival_ms[-1]))
        stats = opened.delays.stats()
        found = Played(trace, setting.options()).restart(setting.width_ms, COSTS)
        assert stats.blocks == pytest.approx(found.blocks, rel=0.1)
        assert len(stats.slices) == pytest.approx(found.slices, abs=2)
        assert opened.delays.own_journal.records == pytest.approx(found.records, rel=0.3, abs=10)
        opened.catalog.close()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6))
@settings(deadline=None, max_examples=20)
def test_how_many_blocks_a_slice_begins_with(runs: list[int]) -> None:
    """Against drawing them: of each run the first block is loaded if it has an entry as early as any."""
    width_ms, draws = 500, 800
    random = np.random.default_rng(1)
    first = np.stack([random.integers(0, width_ms, (draws, size)).min(axis=1) for size in runs])
    loaded = first == first.min(axis=0)
    found = begins(runs, width_ms, block_entries=1_000)
    assert found.queued == len(runs)
    assert found.loaded == pytest.approx(loaded.sum(axis=0).mean(), rel=0.1)
    assert found.entries == pytest.approx((loaded * np.array(runs)[:, None]).sum(axis=0).mean(), rel=0.15)


def test_what_is_passed_of_a_slice() -> None:
    half = passes([2_500, 100], 0.5, block_entries=1_000)
    assert half == (4, 3, 2_100, 1_300)
    assert passes([2_500, 100], 1.0, block_entries=1_000).loaded == 4


def test_journal_records() -> None:
    assert records_in(0, 300_000) == 0
    assert records_in(10, 300_000) == 20, "few come alone"
    assert records_in(10**7, 300_000) == 2 * 300_000 // GROUP_COMMIT_MS, "many come together"


def test_calibration_compares_at_three_widths(tmp_path: Path) -> None:
    told: list[str] = []
    found = calibrate(tmp_path / "trials", uniform(4_000, HOUR_MS, 6 * HOUR_MS), told.append)
    widths = [one.predicted.width_ms for one in found.compared]
    assert len(set(widths)) == 3 and widths == sorted(widths)
    for one in found.compared:
        errors = one.errors_percent()
        assert {"memory_bytes", "bytes", "blocks", "recovery_ms"} <= errors.keys()
        assert abs(errors["bytes"]) < 40
    assert found.costs.entry_bytes > 0 and found.costs.open_s > 0
    assert told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("80%:30m", "come to 100 %"),
        ("30m", "write it as"),
        ("100%:x", "not a duration"),
        ("100%:2h-1h", "second"),
    ],
)
def test_mixes_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse_delays(text)


def test_a_mix_of_delays() -> None:
    first, second = parse_delays("80%:30m, 20%:1h-24h")
    assert (first.share, first.least_ms, first.most_ms) == (0.8, 1_800_000, 1_800_000)
    assert (second.least_ms, second.most_ms) == (HOUR_MS, 24 * HOUR_MS)
