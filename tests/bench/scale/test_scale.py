"""The parts of scale, profile, bounds and libraries on which their figures depend."""

from __future__ import annotations

from cProfile import Profile
from pathlib import Path

import numpy as np
import pytest

from bench.bounds import bench as bounds
from bench.harness import baseline
from bench.harness.driver import Plan, Recorder
from bench.harness.index_driver import UNCOMMITTED_MAX, IndexDriver
from bench.harness.made_entries import START_MS, Source, Tally
from bench.harness.meters import Pauses, PeakMemory, disk_bytes, resident_mib
from bench.harness.results import EVERYTHING_ELSE, Machine, Metric, Result, save
from bench.libraries import merge_ways
from bench.plots import single as single_plots
from bench.plots.profile import functions
from bench.profile import bench as profile
from bench.profile.worker import by_function, label
from bench.scale import bench as scale
from bench.scale.looks import look
from bench.scale.steps import Stopwatch, drain, fill
from tidegate.index.clock import ManualClock
from tidegate.index.entries.entry import Entries
from tidegate.index.entries.sort import sort_entries

HOUR_MS = 3_600_000
SOURCE = Source(HOUR_MS)


def in_order(count: int, source: Source = SOURCE) -> Entries:
    return sort_entries(source.entries(0, count))


def tallied(*pops: Entries, now_ms: int = START_MS + HOUR_MS, count: int = 100) -> dict[str, float]:
    tally = Tally(SOURCE)
    for entries in pops:
        tally.examine(entries, now_ms)
    return tally.check(count)


# ---- the input and its check


def test_a_source_gives_the_same_entries_however_it_is_asked_and_all_in_its_span() -> None:
    together = SOURCE.entries(0, 60_000)
    assert SOURCE.entries(40_000, 20_000) == together.take(np.arange(40_000, 60_000))
    assert len(set(zip(together.ledger_id.tolist(), together.entry_id.tolist(), strict=True))) == 60_000
    assert together.deliver_at_ms.min() >= START_MS
    assert together.deliver_at_ms.max() < START_MS + HOUR_MS
    thirds = np.bincount((together.deliver_at_ms - START_MS) * 3 // HOUR_MS)
    assert (abs(thirds - 20_000) < 600).all()  # five standard deviations


def test_entries_of_a_source_with_steps_arrive_in_turn_and_never_after_they_are_due() -> None:
    fixed = Source(1, step_ns=20_000, delay_ms=1_800_000)
    due = fixed.entries(0, 1_000).deliver_at_ms
    assert [int(at) - fixed.arrival_ms(number) for number, at in enumerate(due)] == [1_800_000] * 1_000
    spread = Source(120_000, step_ns=20_000)
    due = spread.entries(0, 1_000).deliver_at_ms
    assert all(at >= spread.arrival_ms(number) for number, at in enumerate(due.tolist()))


def test_everything_in_order_passes_the_tally() -> None:
    entries = in_order(100)
    halves = entries.take(np.arange(50)), entries.take(np.arange(50, 100))
    assert tallied(*halves) == {"missing": 0, "wrong": 0, "early": 0, "out_of_order": 0}


def test_the_tally_finds_what_is_missing_and_what_is_still_held_is_not() -> None:
    tally = Tally(SOURCE)
    tally.examine(in_order(90), START_MS + HOUR_MS)
    assert tally.check(100)["missing"] == 10
    assert tally.check(100, held=10)["missing"] == 0


def test_the_tally_finds_an_entry_twice_in_place_of_another() -> None:
    entries = in_order(100)
    twice = np.arange(100)
    twice[40] = 41
    verdict = tallied(entries.take(twice))
    assert verdict["missing"] == 0
    assert verdict["wrong"] == 1
    assert verdict["out_of_order"] == 1


def test_the_tally_finds_a_changed_time_an_early_one_and_a_wrong_order() -> None:
    entries = in_order(100)
    later = Entries(entries.deliver_at_ms + 1, entries.ledger_id, entries.entry_id)
    assert tallied(later)["wrong"] == 100
    assert tallied(entries, now_ms=int(entries.deliver_at_ms[-1]) - 1)["early"] == 1
    halves = entries.take(np.arange(50, 100)), entries.take(np.arange(50))
    assert tallied(*halves)["out_of_order"] == 1
    assert tallied(entries.take(np.arange(100)[::-1]))["out_of_order"] == 99


# ---- meters


def test_pauses_keep_the_longest_of_each_kind_and_quantiles_of_all() -> None:
    pauses = Pauses()
    assert pauses.longest_ms() == pauses.quantile_ms(0.999) == pauses.total_s("add") == 0.0
    for took_ms in (1, 2, 3):
        pauses.note("add", took_ms * 1_000_000)
    pauses.note("pop", 7_000_000)
    assert pauses.by_kind_ms() == {"add": 3.0, "pop": 7.0}
    assert pauses.longest_ms() == 7.0
    assert pauses.quantile_ms(0.5, "add") == 2.0
    assert pauses.quantile_ms(0.5, "none") == 0.0
    assert pauses.quantile_ms(0.0) == 1.0
    assert pauses.total_s("add") == pytest.approx(0.006)


def test_the_peak_of_memory_stays_when_the_memory_is_given_back_until_it_is_reset() -> None:
    memory = PeakMemory()
    before_mib = resident_mib()
    # Much more than what a kernel that reclaims what lies idle may take from the tests before it meanwhile.
    block = np.ones(512 << 17)  # 512 MiB
    del block
    assert memory.peak_mib > before_mib + 50
    memory.reset()
    assert memory.peak_mib < before_mib + 50


def test_bytes_on_disk_are_those_of_the_files_with_that_ending(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one.log").write_bytes(b"12345")
    (tmp_path / "two.sst").write_bytes(b"123")
    assert disk_bytes(tmp_path) == 8
    assert disk_bytes(tmp_path, ".log") == 5


def test_a_stopwatch_leaves_out_what_it_is_stopped_for() -> None:
    stopwatch = Stopwatch()
    with stopwatch.stopped():
        sum(range(200_000))
    stopwatch.end()
    assert 0 <= stopwatch.net_s < stopwatch.wall_s
    assert stopwatch.wall_s == stopwatch.wall_s


# ---- the driver


def test_the_driver_makes_durable_what_it_adds_and_gives_it_back(tmp_path: Path) -> None:
    clock = ManualClock(START_MS - HOUR_MS)
    with IndexDriver.opened(tmp_path, clock) as driver:
        index = driver.subscription()
        figures = fill(driver, [index], SOURCE, 50_000)
        assert driver.catalog.journal.durable_token == driver.catalog.stats().appended_token
        assert driver.commits >= 1
        assert figures["adds_per_s"] > 0
        driver.settle()
        looked = look(driver, index, SOURCE, 50_000)
        assert (looked["tide_wrong"], looked["page_short"]) == (0, 0)
        assert min(looked[name] for name in ("tide_ms", "page_ms", "loop_ms")) > 0
        assert look(driver, index, SOURCE, 50_001)["tide_wrong"] == 1
        driver.clock.set_ms(START_MS)
        drained = drain(driver, index, Tally(SOURCE), 50_000, HOUR_MS // 10)
        assert {name: drained[name] for name in ("missing", "wrong", "early", "out_of_order")} == {
            "missing": 0, "wrong": 0, "early": 0, "out_of_order": 0,
        }  # fmt: skip
        assert drained["popped"] == 50_000
        assert index.stats().held == 0
        driver.catalog.close()


def test_the_driver_waits_before_too_much_is_not_durable(tmp_path: Path) -> None:
    with IndexDriver.opened(tmp_path, ManualClock(START_MS - HOUR_MS)) as driver:
        index = driver.subscription()
        for start in range(0, 2 * UNCOMMITTED_MAX, 10_000):
            driver.add(index, SOURCE.entries(start, 10_000))  # without a turn nothing is committed
        driver.wait_for_room()
        assert driver.commits >= 1
        driver.commit_all()
        assert driver.catalog.journal.durable_token == driver.catalog.stats().appended_token
        driver.catalog.close()


# ---- profile and baseline


def test_functions_are_named_by_module_and_c_functions_by_their_type() -> None:
    assert label(sort_entries.__code__) == "sort.py sort_entries"
    assert label("<method 'sort' of 'numpy.ndarray' objects>") == "ndarray.sort"
    assert label("<built-in method builtins.len>") == "len"
    assert label("<built-in method zlib.crc32>") == "zlib.crc32"
    profiler = Profile()
    profiler.enable()
    np.arange(1_000)[::-1].copy().sort()
    profiler.disable()
    assert {"ndarray.sort", "ndarray.copy"} <= by_function(profiler).keys()


def test_small_functions_are_one_line_together_and_nothing_is_lost() -> None:
    kept = profile.kept({"small": 0.1, "large": 60.0, "tiny": 0.05, "middle": 30.0}, 100.0)
    assert list(kept) == ["large", "middle", EVERYTHING_ELSE]
    assert sum(kept.values()) == pytest.approx(90.15)


def profiled(revision: str, **functions_ns: float) -> Result:
    recorder = Recorder()
    figures = {"wall_ns": 100.0, "cpu_ns": 90.0, "switches": 1.0, "faults": 2.0}
    profile.record(recorder, "add", figures, figures | {"functions_ns": functions_ns})
    return Result(
        bench="profile", summary="s", command="c", quick=False, runs=1, started_at="2026-01-02T03:04",
        duration_s=1, revision=revision, versions={}, parameters={}, peers=["tidegate"], notes=[],
        machine=Machine(cpu="p", cores=2, memory_gib=8, system="Linux", load_1min_at_start=0),
        metrics=recorder.metrics,
    )  # fmt: skip


def test_the_profile_of_before_is_a_column_beside_the_one_of_now(tmp_path: Path) -> None:
    save(profiled("new", pop=20.0, sort=50.0), tmp_path / "profile.json")
    assert not baseline.is_before(tmp_path / "profile.json")
    assert baseline.load_beside(tmp_path / "profile.json").peers == ["tidegate"]
    save(profiled("old", pop=80.0, lexsort=5.0), tmp_path / "profile-before.json")
    assert baseline.is_before(tmp_path / "profile-before.json")
    both = baseline.load_beside(tmp_path / "profile.json")
    assert both.peers == ["tidegate", "before"]
    assert {metric.title: metric.samples for metric in functions(both)} == {
        "pop": {"tidegate": [20.0], "before": [80.0]},
        "sort": {"tidegate": [50.0]},
        "lexsort": {"before": [5.0]},
        EVERYTHING_ELSE: {"tidegate": [0.0], "before": [0.0]},
    }
    assert functions(both)[0].title == "pop"  # the longest of either
    assert any("revision old" in note for note in both.notes)


# ---- bounds and libraries


def test_the_bound_of_a_path_is_the_sum_of_its_parts() -> None:
    alone = dict.fromkeys(("put_in_ns", "look_up_ns", "take_out_ns", "decode_ns", "disk_sync_ms"), 1.0)
    alone |= {"copy_ns": 2.0, "sort_ns": 10.0, "encode_ns": 25.0}
    alone |= {"packed_bytes": 4.0, "crc_gb_s": 4.0, "disk_mb_s": 800.0}
    parts = bounds.parts_of("spill", alone)
    assert sum(parts.values()) == pytest.approx(2 + 10 + 25 + 4 * (0.25 + 1.25))
    recorder = Recorder()
    times = bounds.record(recorder, "spill", {"wall_ns": 86.0, "cpu_ns": 50.0}, parts)
    assert times == pytest.approx(2.0)
    assert recorder.metric("spill", "measured, of the bound", "times").samples == {"tidegate": [2.0]}


def test_every_library_that_is_there_merges_as_numpy_does() -> None:
    runs, held = merge_ways.runs_and_held(5_000, 8)
    keys = np.sort(np.concatenate(runs))
    kept = keys[[bool(held[number >> 3] >> (number & 7) & 1) for number in (keys & merge_ways.MASK).tolist()]]
    assert 0 < len(kept) < len(keys)
    assert "numpy" in merge_ways.installed()
    for name in merge_ways.installed():
        way = merge_ways.WAYS[name][1]()
        assert np.array_equal(way(runs, None), keys), name
        assert np.array_equal(way(runs, held), kept), name


def test_the_compiled_loop_is_right_before_it_is_compiled() -> None:
    merge = merge_ways._merge_heads
    keys, held = np.array([1, 5, 9, 2, 3, 4]), np.array([0b0010_1010, 0b10], np.uint8)
    ends = np.array([3, 3, 6])
    assert merge(keys, np.array([0, 3, 3]), ends, held[:0]).tolist() == [1, 2, 3, 4, 5, 9]
    assert merge(keys, np.array([0, 3, 3]), ends, held).tolist() == [1, 3, 5, 9]


# ---- plots


def test_a_target_is_used_by_the_share_that_the_worst_round_takes() -> None:
    def measured(better: str, *samples: float, target: float | None = 4.0) -> Metric:
        fields = {"scenario": "s", "title": "t", "unit": "u", "better": better, "target": target}
        return Metric.model_validate(fields | {"samples": {"tidegate": list(samples)}})

    assert single_plots.share(measured("lower", 1.0, 2.0), "tidegate") == 0.5
    assert single_plots.share(measured("higher", 2.0, 8.0), "tidegate") == 2.0
    assert single_plots.share(measured("higher", 0.0), "tidegate") is None
    assert single_plots.share(measured("lower", 1.0, target=0), "tidegate") is None
    assert single_plots.share(measured("lower", 1.0, target=None), "tidegate") is None
    assert single_plots.share(measured("lower", 1.0), "another") is None


# ---- scale's lines


def test_a_line_is_recorded_in_its_unit_with_its_target_and_missing_figures_are_left_out() -> None:
    recorder = Recorder()
    lines = scale.limited(scale.FILL, "adds_per_s", 3.0)
    scale.Run(Plan(True, 1, ("tidegate",), None), recorder).record(  # type: ignore[arg-type]
        "week", lines, {"adds_per_s": 4_200_000.0, "pauses_ms": {"add": 1.5}}
    )
    made: dict[str, Metric] = {metric.title: metric for metric in recorder.metrics}
    assert list(made) == ["adds, durable", "longest: add"]
    assert made["adds, durable"].samples == {"tidegate": [4.2]}
    assert made["adds, durable"].target == 3.0
    assert not made["longest: add"].headline
