"""Where the time of a start went: every part of it is told."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import psutil

from tidegate.index import ManualClock
from tidegate.index.store import MemoryStore, Store
from tidegate.plugin.daemon.logs import make_logger
from tidegate.plugin.daemon.serve import running_daemon
from tidegate.plugin.daemon.settings import Settings, load_settings
from tidegate.plugin.daemon.start_times import StartTimes, process_started_ns


def test_the_start_of_this_process() -> None:
    started_ns = process_started_ns()
    assert started_ns is not None
    age_s = (time.monotonic_ns() - started_ns) / 1e9
    assert abs(age_s - (time.time() - psutil.Process().create_time())) < 2.0


def test_the_name_of_a_process_may_be_anything(tmp_path: Path) -> None:
    ticks = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000
    said = " ".join(["S", *["7"] * 18, str(ticks), *["7"] * 30])
    stat = tmp_path / "stat"
    stat.write_text(f"4711 (a) b (c)) {said}\n", "utf-8")
    started_ns = process_started_ns(stat)
    assert started_ns is not None
    assert 0 <= time.monotonic_ns() - started_ns < 60e9


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    assert process_started_ns(stat) is None
    in_the_future = "1 (python) " + f"{10**15} " * 50
    for text in ("", "4711 (python) S 1", "4711 (python) " + "x " * 50, in_the_future):
        stat.write_text(text, "utf-8")
        assert process_started_ns(stat) is None, text


def test_the_parts_are_the_whole() -> None:
    clock = ManualClock()
    clock.work(900_000)
    times = StartTimes(clock, began_ns=-600_000)
    for part in ("one", "two", "one"):
        times.done(part)
        clock.work(1_500_000)
    assert times.fields() == {"start_ms": 4, "one_ms": 3, "two_ms": 1}


async def test_of_a_daemon(short_dir: Path, socket_path: Path) -> None:
    clock = ManualClock()

    def slow(_: Settings) -> Store:
        clock.advance(30)
        return MemoryStore()

    settings = load_settings({"data": short_dir / "data", "socket": socket_path})
    log = make_logger("json", "info", io.StringIO())
    clock.advance(500)
    async with running_daemon(settings, log, clock, slow, began_ns=0) as daemon:
        assert daemon.start_times.fields() == {
            "start_ms": 530,
            "loading_ms": 500,
            "claiming_ms": 0,
            "store_ms": 30,
            "indexes_ms": 0,
            "accepting_ms": 0,
        }
