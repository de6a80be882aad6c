"""The simulator: the commit's histories hold, kept ones too, and a run repeats itself to the byte."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.sim.__main__ import main
from tests.sim.broker import _SEALS_NS, SEAL, ServedSubscription
from tests.sim.campaign import Campaign
from tests.sim.generator import FAULTS, generate
from tests.sim.history import History
from tests.sim.player import play
from tests.sim.report import explain, summary
from tests.support.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "testdata" / "sim"
CORE_S = 20.0
"""Time of each core, not of the clock: other programs must not make it fewer histories."""
IN_OBJECTS = {"index_log": True, "log_objects": True, "shared_daemon": False, "daemon_wait_ms": 10_000}
"""Logs in a store of objects, and a daemon for each broker, so that they are read."""

IN_LEDGERS_OF_BLOCKS = {
    **{"index_log": True, "shared_daemon": False, "daemon_wait_ms": 10_000, "near_max": 5},
    **{"log_inline_bytes": 0, "log_blocks_ledger_bytes": 500, "staging_budget_bytes": 240},
    "persist_age_ms": 200,
}
"""Logs that only name their blocks, with some soon."""


def test_histories_of_the_commit_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    campaign = Campaign.of_commit(100_000, CORE_S)
    campaign.run(print)
    with capsys.disabled():
        print(f"\n{summary(campaign)}")

    assert campaign.done > 0
    assert not campaign.failures, explain(campaign.failures[0], tmp_path, shrinks=True)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_kept_histories_hold(path: Path) -> None:
    history = History.load(path)

    outcome = play(history)

    assert outcome.passed, outcome.details
    assert history.about


def test_an_index_replaced_at_each_poll_is_of_its_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the next commit the store has the former one, too."""

    def keep_another(served: ServedSubscription) -> None:
        cursor = served.cursor
        if not cursor.closed:
            served.broker.after(_SEALS_NS, served._keep_seal)
            if served._looked and not served._pending_reset and served.owner() is not None:
                seal = served.broker.kernel.numbers.randrange(1, 1 << 63)
                properties = {**cursor.position_properties, SEAL: seal}
                cursor.move_to(cursor.mark_delete, properties, lambda written: None)

    monkeypatch.setattr(ServedSubscription, "_keep_seal", keep_another)

    outcome = play(generate(1, ("seek", "move", "crash")))

    assert outcome.passed, outcome.details


def test_workers_end_with_a_campaign_that_was_killed() -> None:
    """They have its standard output, too, which ends only with them."""
    command = [sys.executable, "-m", "tests.sim", "--seeds", "1000000", "--jobs", "2", "--no-shrink"]
    campaign = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    workers: list[psutil.Process] = []

    def are_there() -> bool:
        with contextlib.suppress(psutil.Error):  # one just being started
            children = psutil.Process(campaign.pid).children()
            workers[:] = [each for each in children if any("spawn_main" in word for word in each.cmdline())]
        return len(workers) == 2

    try:
        wait_until(are_there, "the workers are there")
        campaign.kill()
        campaign.communicate(timeout=60)
    finally:
        campaign.kill()
        for each in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_is_one_history_and_one_run(seed: int) -> None:
    runs: list[list[str]] = [[], []]
    for run in runs:
        play(generate(seed), run.append)

    assert runs[0] == runs[1]
    assert len(runs[0]) > 100


@pytest.mark.parametrize("seed", [2, 9])
def test_a_run_with_a_store_of_objects_is_the_same_whenever_garbage_is_collected(seed: int) -> None:
    """There indexes are restored in the simulation, and not by a thread beside it."""
    history = generate(seed, ("objects", "move"), IN_OBJECTS)
    runs: list[list[str]] = [[], [], []]
    threshold = gc.get_threshold()
    try:
        for run, collects_after in zip(runs, (0, 50, 700), strict=True):  # 0: never
            gc.set_threshold(collects_after, 5, 5)
            play(history, run.append)
    finally:
        gc.set_threshold(*threshold)

    assert runs[0] == runs[1] == runs[2]
    assert any("the index was restored from its log" in line for line in runs[0])


@pytest.mark.parametrize(
    ("faults", "objects", "seed"), [(("move",), False, 1), (("move", "objects"), True, 2)]
)
def test_an_index_that_moves_is_open_before_its_blocks_are_there(
    faults: tuple[str, ...], objects: bool, seed: int
) -> None:
    run: list[str] = []

    outcome = play(generate(seed, faults, {**IN_LEDGERS_OF_BLOCKS, "log_objects": objects}), run.append)

    assert outcome.passed, outcome.details
    restored = [line for line in run if "the index was restored from its log" in line]
    assert any("'blocks_to_come': 0" not in line for line in restored)
    assert any("all blocks of a restored index have arrived" in line for line in run)


@pytest.mark.parametrize("objects", [False, True])
def test_a_run_is_the_same_in_every_process(objects: bool, tmp_path: Path) -> None:
    """With two index logs: their turns must not depend on their places in memory."""
    path = tmp_path / "165.json"
    settings = {"index_log": True, "subscriptions": 2, "log_objects": objects}
    generate(165, FAULTS, settings).save(path)
    command = [sys.executable, "-m", "tests.sim", "--replay", str(path), "--trace"]
    children = [
        subprocess.Popen(command, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE)
        for seed in ("1", "2")
    ]

    runs = [child.communicate()[0].splitlines() for child in children]

    assert [child.returncode for child in children] == [0, 0]
    assert next((lines for lines in zip(*runs, strict=False) if lines[0] != lines[1]), None) is None
    assert len(runs[0]) == len(runs[1]) > 1_000


def test_a_history_is_the_same_after_it_was_written_and_read(tmp_path: Path) -> None:
    history = generate(7)

    history.save(tmp_path / "7.json")

    assert History.load(tmp_path / "7.json") == history


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--replay", "nowhere.json"], "neither a seed nor"),
        (["--replay", "{tmp}/broken.json"], "is no history"),
        (["--seeds", "0"], "1 or more"),
        (["--faults", "crash,quake"], "knows no quake"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.json").write_text('{"format": 99}', encoding="utf-8")

    code = main([each.replace("{tmp}", str(tmp_path)) for each in arguments])

    assert code == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
