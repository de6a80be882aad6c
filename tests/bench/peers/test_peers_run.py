"""Peers in processes of their own: killed -9, started again, stopped, missing; and the bench of them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console

from bench import registry
from bench.harness import driver, machine, report, workloads
from bench.harness.errors import BenchError
from bench.harness.results import Result
from bench.harness.workloads import Workload
from bench.peers import bench as peers
from bench.peers import inputs, postgresql_server, redis_server, roster, server
from bench.peers.base import (
    DRAIN,
    FILL,
    LATENESS,
    RECOVER,
    DrainFigures,
    FillFigures,
    LatenessFigures,
    RecoverFigures,
)
from bench.peers.bench import Sizes
from bench.peers.launch import Budget, Launcher, Session
from bench.peers.postgresql_rows import copy_out, decoded, encoded
from bench.peers.redis_records import flat, packed, unpacked
from bench.peers.server import Server
from bench.plots.picture import draw
from tidegate.index.entries.entry import Entries

LOCAL = ("tidegate", "rocksdb", "qmq", "wheel-file", "levels", "heapq", "heapdict")
SERVERS = ("redis", "postgresql")
HERE = [*LOCAL, *(name for name in SERVERS if roster.launcher(name).missing() is None)]
"""Peers that can run here: those without a server always, the others where the server is installed."""
ROOMY = Budget(phase_s=60.0, lateness_s=0.2)
COUNT = 12_000
TINY = Sizes(10_000, 5_000, 10_000, 20.0, 20.0, 0.2, ("orders",))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a server's own user can get to, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-test-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def session(name: str, folder: Path, workload: Workload, budget: Budget = ROOMY) -> Session:
    inputs.write(folder, workload)
    return Session(roster.launcher(name), folder, workload.name, len(workload), budget)


@pytest.mark.parametrize("name", [name for name in HERE if roster.launcher(name).info.survives_kill])
def test_what_was_added_before_a_kill_comes_out_after_it(name: str, folder: Path) -> None:
    with session(name, folder, workloads.seeded("orders", COUNT, 1)) as running:
        assert running.start(FILL, FillFigures).added == COUNT
        assert peers.disk_bytes(folder / inputs.DATA) - roster.launcher(name).empty_bytes() > 0
        running.kill()
        recovered = running.start(RECOVER, RecoverFigures)
        assert recovered.held_after == COUNT
        assert recovered.popped > 0
        assert recovered.first_pop_s is not None
        running.settle()
        running.kill()
        drained = running.start(DRAIN, DrainFigures)
    assert drained.missing == 0
    assert drained.early == 0
    assert COUNT - recovered.popped <= drained.popped <= COUNT


@pytest.mark.parametrize("name", [name for name in HERE if not roster.launcher(name).info.survives_kill])
def test_who_keeps_nothing_drains_where_it_was_filled(name: str, folder: Path) -> None:
    with session(name, folder, workloads.seeded("uniform", COUNT, 1)) as running:
        running.start(FILL, FillFigures)
        drained = running.ask(DRAIN, DrainFigures)
    assert (drained.popped, drained.missing, drained.early, drained.out_of_order) == (COUNT, 0, 0, 0)


@pytest.mark.parametrize("name", ["tidegate", "qmq", "rocksdb", "heapq"])
def test_nothing_is_handed_out_early_in_real_time(name: str, folder: Path) -> None:
    with session(name, folder, workloads.seeded("uniform", 1_000, 1)) as running:
        late = running.start(LATENESS, LatenessFigures)
    assert (late.handed_out, late.missing, late.early, late.backlog) == (400, 0, 0, 1_000)
    assert 0 <= late.p50_ms <= late.p99_ms <= late.max_ms
    assert (late.fast is not None) == roster.launcher(name).info.may_look_faster


def test_a_phase_past_its_budget_stops_and_says_so(folder: Path) -> None:
    workload = workloads.seeded("uniform", 3 * COUNT, 1)
    with session("heapq", folder, workload, Budget(phase_s=0.0, lateness_s=0.2)) as running:
        filled = running.start(FILL, FillFigures)
        drained = running.ask(DRAIN, DrainFigures)
    assert filled.stopped
    assert filled.added == 10_000
    assert drained.stopped
    assert 0 < drained.popped < filled.added
    assert drained.missing == 0  # nobody knows yet


def test_a_peer_that_cannot_do_its_phase_is_one_error(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        session("heapq", folder, workloads.seeded("uniform", 10, 1)) as running,
        pytest.raises(BenchError, match="heapq failed at fill with code 1"),
    ):
        running.start(FILL, FillFigures, count=11)
    assert "has 10 entries, 11 are wanted" in capfd.readouterr().err
    with pytest.raises(BenchError, match="does not run"):
        running.settle()


def test_an_unknown_peer_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(BenchError, match="no peer 'kafka'; there are tidegate"):
        roster.peer_class("kafka")


# ---- servers


def test_a_missing_server_is_a_note_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(postgresql_server, "PROGRAMS", tmp_path)
    recorder = driver.Recorder()
    plan = driver.Plan(True, 1, ("redis", "postgresql", "heapq"), Console(quiet=True))
    assert list(peers.present(plan, recorder)) == ["heapq"]
    assert recorder.notes[:2] == [
        "redis was skipped: redis-server is not installed; install it with: make bench-peers",
        "postgresql was skipped: postgresql is not installed; install it with: make bench-peers",
    ]
    with pytest.raises(BenchError, match="make bench-peers"):
        peers.present(driver.Plan(True, 1, ("redis",), Console(quiet=True)), driver.Recorder())


def test_a_missing_client_is_named() -> None:
    assert server.missing_package("no_such_package_here") == (
        "the Python package no_such_package_here is not installed; install it with: make bench-peers"
    )
    assert server.missing_package("numpy") is None


PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_server_takes_its_children_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    running = Server([sys.executable, "-c", PARENT], user=None, folder=tmp_path, log=log)
    running.wait_ready(lambda: log.read_text(encoding="utf-8").strip().isdigit())
    child = int(log.read_text(encoding="utf-8"))
    assert psutil.pid_exists(child)
    running.kill()
    assert not psutil.pid_exists(running.pid)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


def test_a_server_that_ends_while_starting_has_its_last_words_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no room at the inn')"]
    running = Server(command, user=None, folder=tmp_path, log=tmp_path / "log")
    with pytest.raises(BenchError, match="ended while starting: no room at the inn"):
        running.wait_ready(lambda: False)
    running.kill()
    with pytest.raises(BenchError, match="cannot be started"):
        Server([str(tmp_path / "absent")], user=None, folder=tmp_path, log=tmp_path / "log")


def test_nobody_listens_where_there_is_no_server(tmp_path: Path) -> None:
    assert not redis_server.answers(tmp_path / "redis.sock")
    assert not postgresql_server.is_ready(tmp_path, tmp_path)


def test_the_newest_postgresql_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for version in ("9.6", "15", "17"):
        (tmp_path / version / "bin").mkdir(parents=True)
    for version in ("9.6", "15"):
        (tmp_path / version / "bin" / "initdb").touch()
    monkeypatch.setattr(postgresql_server, "PROGRAMS", tmp_path)
    assert postgresql_server.programs() == tmp_path / "15" / "bin"


ENTRIES = Entries.of([(1_800_000_000_000, 1, 0), (1_800_000_000_001, 1 << 40, (1 << 32) - 1)])


def test_redis_keeps_a_position_as_id_and_the_whole_entry_as_record() -> None:
    ids, records = packed(ENTRIES)
    assert [len(one) for one in ids] == [16, 16]
    assert [record[:16] for record in records] == ids
    assert unpacked(records) == ENTRIES
    assert flat([5, 6], ids) == [5, ids[0], 6, ids[1]]


def test_entries_go_through_postgresqls_binary_form_unchanged() -> None:
    content = encoded(ENTRIES)
    assert content.startswith(b"PGCOPY\n\xff\r\n\x00")
    assert content.endswith(b"\xff\xff")
    assert decoded(content) == ENTRIES
    assert not len(decoded(encoded(Entries.empty())))


def test_the_scan_takes_the_earliest_and_leaves_what_others_have_locked() -> None:
    statement = copy_out(17, 3)
    assert "deliver_at <= 17 ORDER BY deliver_at LIMIT 3 FOR UPDATE SKIP LOCKED" in statement
    assert statement.startswith("COPY (DELETE FROM delayed")


# ---- the bench


def run(monkeypatch: pytest.MonkeyPatch, *only: str, trace: Path | None = None) -> Result:
    monkeypatch.setattr(peers, "QUICK", TINY)
    return driver.run(
        registry.find("peers"),
        quick=True,
        runs=None,
        only=only,
        console=Console(quiet=True),
        command="test",
        trace=trace,
    )


def test_the_bench_measures_everything_it_promises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = run(monkeypatch, "tidegate", "heapq")
    figures = {(metric.scenario, metric.title): metric.samples for metric in made.metrics}
    uniform, large = "10,000 due evenly over 24 h", "10,000 due evenly over 24 h"
    assert figures[(f"kill -9, {uniform}", "lost")] == {"tidegate": [0.0, 0.0], "heapq": [10_000.0]}
    assert figures[(uniform, "out of order")] == {"tidegate": [0.0], "heapq": [0.0]}
    assert set(figures[(f"kill -9, {large}", "started again, first due pop")]) == {"tidegate"}
    assert set(figures[(uniform, "files when settled")]) == {"tidegate"}
    for title in ("adds", "pops", "memory, filling", "longest pop"):
        assert set(figures[(uniform, title)]) == {"tidegate", "heapq"}
    assert set(figures[("5,000 30 min ± 30 s, sent over an hour", "pops")]) == {"tidegate", "heapq"}
    late = "2,000 due a second before a backlog of 10,000"
    assert figures[(late, "early")] == {"tidegate": [0.0], "heapq": [0.0]}
    assert {series.peer for series in made.series} == {"tidegate", "heapq"}
    assert any(note.startswith("tidegate: this project's index") for note in made.notes)
    assert "--quick leaves out the workloads hourly, levels, tail" in made.notes
    assert draw(made, tmp_path / "peers.json").is_file()
    assert report.markdown(made).count("| heapq |") >= 1 or "vs heapq" in report.markdown(made)


def test_a_trace_takes_the_place_of_the_seeded_workloads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ours.csv"
    path.write_text("deliver_after_ms,arrive_ms\n" + "".join(f"{at * 7},{at}\n" for at in range(2_000)))
    made = run(monkeypatch, "heapq", trace=path)
    assert {metric.scenario for metric in made.metrics} == {
        "2,000 trace ours.csv",
        "kill -9, 2,000 trace ours.csv",
        "2,000 due a second before a backlog of 2,000",
    }


def test_a_peer_that_fails_is_told_and_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Launcher):
        def command(self, phase: str, folder: Path, workload: str, count: int) -> list[str]:
            return [sys.executable, "-c", "print('{}')"]

    real = roster.launcher
    broken = Broken(roster.peer_class("heapdict").info)
    monkeypatch.setattr(roster, "launcher", lambda name: broken if name == "heapdict" else real(name))
    made = run(monkeypatch, "heapdict", "heapq")
    assert any(
        note.startswith("heapdict failed and was left out from then on: heapdict reports something else")
        for note in made.notes
    )
    assert all("heapdict" not in metric.samples for metric in made.metrics)
    with pytest.raises(BenchError, match="every peer failed"):
        run(monkeypatch, "heapdict")


def test_stops_are_told_once_with_their_range() -> None:
    stops = peers.Stops()
    for count in (30_000, 10_000, 20_000):
        stops.add("levels", "1,000 heavy tail", "the drain", 12.0, count)
    stops.add("redis", "1,000 heavy tail", "the fill", 12.0, 5)
    assert list(stops.notes()) == [
        "levels, 1,000 heavy tail: the drain was stopped after 10,000 … 30,000 entries in 12 s",
        "redis, 1,000 heavy tail: the fill was stopped after 5 entries in 12 s",
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["index", "--trace", "any.csv"], "bench: index has no use for a trace: leave out --trace"),
        (["peers", "--trace", "absent.csv"], "bench: the trace absent.csv cannot be read"),
        (["peers", "--only", "redis"], "make bench-peers"),
        (["peers", "--only", "kafka"], "bench: peers knows the peers tidegate"),
    ],
)
def test_a_users_mistake_is_one_line(arguments: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "run", *arguments],
        cwd=machine.ROOT,
        env={**os.environ, "PATH": "/nonexistent", "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_files_of_a_folder_are_counted_while_they_change(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "one").write_bytes(bytes(7))
    np.arange(3, dtype="<i8").tofile(tmp_path / "two")
    assert peers.disk_bytes(tmp_path) == 31
