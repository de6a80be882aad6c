"""Known bugs are found: each planted, each met by one of the first few seeds of its kind of histories."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.sim.__main__ import main
from tests.sim.campaign import Failure
from tests.sim.generator import generate
from tests.sim.history import History
from tests.sim.planted_broker import (
    given_back_in_eighths,
    moves_taken_for_resets,
    refused_and_left,
    repeated_reset_left,
    sealed_amid_a_reset,
    told_once,
)
from tests.sim.planted_daemon import (
    acknowledgements_not_put_back,
    lost_claim_not_told,
    taken_for_foreign,
)
from tests.sim.planted_logs import (
    brings_what_was_dropped,
    landed_without_a_mark,
    names_no_ledger_before,
    places_of_another_owners_ledgers,
)
from tests.sim.plants import PLANTS, Plant
from tests.sim.player import Outcome, play
from tests.sim.report import command, explain

GOLDEN = Path(__file__).parents[1] / "testdata" / "sim"
# The rarest plant needs 25 histories. One that needs more gets a kind of faults of its own, as `behind` is.
SEEDS_MAX = 120
HISTORIES_MAX = 300


def first_failure(plant: Plant) -> Failure:
    """The first seed that meets the plant. Fails if none of the first `SEEDS_MAX` does."""
    for seed in range(1, SEEDS_MAX + 1):
        outcome = play(generate(seed, plant.faults, plant.settings))
        if not outcome.passed:
            return Failure(seed, outcome)
    pytest.fail(f"none of {SEEDS_MAX} seeds meets it")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.name)
def test_a_known_bug_is_found(plant: Plant) -> None:
    with plant.plant():
        found = first_failure(plant)

    assert plant.is_met_by(found.outcome.failure or ""), found.outcome.failure
    history = generate(found.seed, plant.faults, plant.settings)
    assert play(history).passed, "it fails without the bug, too"


@pytest.mark.parametrize(
    ("name", "plant", "says"),
    [
        ("unload_amid_a_seek", sealed_amid_a_reset, "is deleted in the cursor though it is owed"),
        ("lost_while_it_was_told", told_once, "lost: "),
        ("credit_kept_short", given_back_in_eighths, "lost: "),
        ("left_of_a_restoration", landed_without_a_mark, "has stored what is of no subscription"),
        ("without_its_format_record", taken_for_foreign, "does not start: ForeignDirectoryError"),
        ("dropped_while_it_was_fetched", brings_what_was_dropped, "loses blocks: there is no ledger"),
        ("refused_and_done_later", refused_and_left, "resets that were refused are done all the same"),
        ("named_by_another_owner", places_of_another_owners_ledgers, "loses blocks: there is no ledger"),
        ("own_log_taken_for_anothers", names_no_ledger_before, "reads its own log in ledger"),
        ("skipped_before_it_was_heard", moves_taken_for_resets, "comes again though the daemon"),
        ("repeated_once_more", repeated_reset_left, "is reset once more, which nobody had reset"),
        ("put_back_with_a_damaged_state", lost_claim_not_told, "which the topic does not have"),
    ],
)
def test_a_kept_history_fails_with_the_bug_that_it_once_showed(
    name: str, plant: Callable[[], AbstractContextManager[None]], says: str
) -> None:
    history = History.load(GOLDEN / f"{name}.json")

    with plant():
        outcome = play(history)

    assert says in (outcome.failure or "")
    assert play(history).passed


@pytest.mark.parametrize("first", [2_000_000, 500_000])
def test_acknowledgements_that_are_forgotten_are_met_by_a_campaign(first: int) -> None:
    """Among all kinds of faults, as `make sim` draws them: the disk fails after DURABLE, the daemon dies."""
    says = "is unknown to it, but it must be acknowledged"
    with acknowledgements_not_put_back():
        for seed in range(first, first + HISTORIES_MAX):
            if says in (play(generate(seed)).failure or ""):  # another check may meet it first
                break
        else:
            pytest.fail(f"none of {HISTORIES_MAX} histories meets it")

    assert play(generate(seed)).passed, "it fails without the bug, too"


def test_ten_bugs_are_planted_and_five_are_real() -> None:
    assert len(PLANTS) >= 10
    assert sum(1 for plant in PLANTS if plant.commit) >= 5


def test_a_failure_is_shrunk_and_one_command_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant = next(plant for plant in PLANTS if plant.name == "credit is ignored")
    with plant.plant():
        seed = next(seed for seed in range(1, SEEDS_MAX) if not play(generate(seed)).passed)
        history = generate(seed)
        text = explain(Failure(seed, play(history)), tmp_path, shrinks=True)
        command = next(line for line in text.splitlines() if line.startswith("replay: "))
        arguments = command.split("tests.sim ")[1].split()
        small = History.load(Path(arguments[1]))

        assert main(arguments) == 1

    assert "more DUE entries than there is credit" in capsys.readouterr().out
    assert len(small.steps) < len(history.steps) // 2
    assert main(arguments) == 0


def test_a_failure_that_is_not_explained_has_its_command_all_the_same(tmp_path: Path) -> None:
    line = command(Failure(7, Outcome("too many to explain"), ("move",)), tmp_path)

    assert "\n" not in line
    path = Path(line.split("--replay ")[1].split()[0])
    assert History.load(path) == generate(7, ("move",))
