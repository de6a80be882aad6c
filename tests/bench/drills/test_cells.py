"""The file of rounds of drills: what is added, what is run next, and what the tables say of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.drills import cells, run, table
from bench.harness.errors import BenchError
from tests.support.ledgers import finished, round_of
from tidegate.plugin.drill.catalogue import DRILLS
from tidegate.plugin.drill.report import as_json
from tidegate.plugin.drill.session import Result
from tidegate.plugin.drill.verdict import judge
from tidegate.plugin.local.distribution import PULSAR


def found(tmp_path: Path, number: int = 1) -> dict[str, object]:
    """A line of ``drill run --json``: a round that passed, with an outage of two seconds."""
    verdict = judge(finished(tmp_path / f"ledger-{number}", round_of(number=number)))
    return as_json(Result("broker-killed", "kills", "tidegate", [verdict]))


def batch(revision: str) -> cells.Batch:
    """Rounds of a revision."""
    return cells.Batch(
        started_at="2026-01-01T00:00:00+00:00", revision=revision, cpu="c", cores=2, load_1min=1
    )


def test_rounds_are_added_up_and_read_back(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    for number in (1, 2):
        rounds.add(found(tmp_path, number), took_s=40.0)
    cells.save(rounds, tmp_path / "drills.json")
    again = cells.load(tmp_path / "drills.json")
    assert again == rounds
    (cell,) = again.cells
    assert (cell.rounds, cell.failed, cell.took_s) == (2, 0, 40.0)
    assert cell.counts == {"sent": 400, "lost": 0, "early": 0, "sent_twice": 0, "unconfirmed": 0}
    assert cell.times["gap_s"] == [2.1, 2.1]
    assert cell.times["max_ms"] == [2_100, 2_100]


def test_each_round_has_its_revision(tmp_path: Path) -> None:
    """Also in a file of before, where that was not kept."""
    rounds = cells.Rounds()
    rounds.add(found(tmp_path))
    rounds.cells[0].batches = []
    for number, revision in enumerate(("aaa", "bbb"), start=2):
        rounds.batches.append(batch(revision))
        rounds.add(found(tmp_path, number))
    cells.save(rounds, tmp_path / "drills.json")
    again = cells.load(tmp_path / "drills.json")
    (cell,) = again.cells
    assert cell.batches == [None, 0, 1]
    assert [one.revision for one in again.batches] == ["aaa", "bbb"]
    assert "with their rounds: aaa (1), bbb (1)" in table.by_drill(again.cells, again.batches)


def test_how_far_it_is_is_told(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    pairs = [("broker-killed", "tidegate"), ("burst", "tidegate")]
    rounds.add(found(tmp_path), took_s=1_800.0)
    rounds.add(as_json(Result("burst", "", "tidegate", [], ["no"])), took_s=5_400.0)
    assert cells.told(rounds, pairs, 3) == (
        "2 of 6 rounds (2 drills and trackers, 3 of each), 1 failed; the others take about 4.0 h"
    )


def test_what_could_not_be_done_is_a_round_that_failed(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    reason = "3 of 44 things; see /home/somebody/run/drill.log, http://127.0.0.1:1234"
    rounds.add(as_json(Result("disk-full", "", "tidegate", [], [reason])))
    (cell,) = rounds.cells
    assert (cell.rounds, cell.failed) == (1, 1)
    assert cell.reasons == {"… of … things; see": 1}
    assert "1 of 1 rounds" in table.by_drill(rounds.cells, [])


def test_twenty_rounds_of_everything_stay_small(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    one = found(tmp_path)
    for drill, tracker in run.wanted([], ["in-memory", "bucket", "no-index-log"]):
        for _ in range(20):
            rounds.add(one | {"drill": drill, "tracker": tracker})
    cells.save(rounds, tmp_path / "drills.json")
    assert (tmp_path / "drills.json").stat().st_size < 68_000


def test_the_fewest_rounds_come_first_and_what_shares_a_stand_together() -> None:
    rounds = cells.Rounds()
    wanted = [("a1", "tidegate"), ("a2", "tidegate"), ("b", "tidegate"), ("a1", "bucket")]

    def following(left_s: float = 100.0, rounds_max: int = 2) -> list[tuple[str, str]]:
        return cells.following(
            rounds, wanted, rounds_max=rounds_max, left_s=left_s, together=lambda name: name[0]
        )

    assert following() == wanted[:2]
    rounds.cell("a1", "tidegate").rounds = 1
    assert following() == [("a2", "tidegate")]
    rounds.cell("a2", "tidegate").rounds = 1
    assert following() == [("b", "tidegate")]
    rounds.cell("b", "tidegate").rounds = 1
    rounds.cell("a1", "bucket").took_s = 90.0
    assert following() == [("a1", "bucket")]
    assert following(left_s=80.0) == wanted[:2], "what would not end in time is left for another day"
    assert following(left_s=10.0) == []
    for pair in wanted:
        rounds.cell(*pair).rounds = 2
    assert following() == []


def test_every_drill_is_wanted_and_others_only_where_they_can_run_it() -> None:
    pairs = run.wanted([], ["in-memory"])
    assert [name for name, tracker in pairs if tracker == "tidegate"] == [drill.name for drill in DRILLS]
    assert ("daemon-killed", "in-memory") not in pairs
    assert ("broker-killed", "in-memory") in pairs
    with pytest.raises(BenchError, match="is it broker-killed"):
        run.wanted(["broker-kiled"], [])
    with pytest.raises(BenchError, match="--compare takes"):
        run.wanted([], ["other"])


def test_what_drills_have_said_is_added(tmp_path: Path) -> None:
    source, path = tmp_path / "said.json", tmp_path / "drills.json"
    source.write_text(json.dumps(found(tmp_path)) + "\n")
    run.add_files([source], path)
    run.add_files([source], path)
    assert cells.load(path).cell("broker-killed", "tidegate").rounds == 2
    source.write_text("nonsense")
    with pytest.raises(BenchError, match="is neither"):
        run.add_files([source], path)
    with pytest.raises(BenchError, match="cannot be read"):
        run.add_files([tmp_path / "none.json"], path)
    assert cells.load(path).cell("broker-killed", "tidegate").rounds == 2
    path.write_text("nonsense")
    with pytest.raises(BenchError, match="--fresh"):
        cells.load(path)


def test_what_ran_in_several_files_side_by_side_is_added_up(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("first.json", "second.json")]
    one = found(tmp_path)
    for path, drill, revision in zip(paths, ("broker-killed", "burst"), ("aaa", "bbb"), strict=True):
        rounds = cells.Rounds(batches=[batch(revision)])
        rounds.add(one | {"drill": drill}, took_s=40.0)
        rounds.add(as_json(Result("upgrade", "", "tidegate", [], ["no 3"])))
        cells.save(rounds, path)
    path = tmp_path / "drills.json"
    run.add_files(paths, path)
    run.add_files(paths[:1], path)
    both = cells.load(path)
    assert {cell.drill: (cell.rounds, cell.failed, cell.batches) for cell in both.cells} == {
        "broker-killed": (2, 0, [0, 2]),
        "upgrade": (3, 3, [0, 1, 2]),
        "burst": (1, 0, [1]),
    }
    assert [one.revision for one in both.batches] == ["aaa", "bbb", "aaa"]
    assert both.cell("upgrade", "tidegate").reasons == {"no …": 3}
    killed = both.cell("broker-killed", "tidegate")
    assert killed.counts["sent"] == 400
    assert killed.times["gap_s"] == [2.1, 2.1]


def test_rounds_of_no_known_run_are_counted(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    rounds.add(found(tmp_path))
    rounds.batches.append(batch("aaa"))
    rounds.add(found(tmp_path, 2))
    shown = table.by_drill(rounds.cells, rounds.batches)
    assert "2 rounds, 1 of them in 1 runs that are known" in shown.replace("\n", " ")


def test_the_tables_say_the_median_and_the_worst(tmp_path: Path) -> None:
    rounds = cells.Rounds()
    rounds.add(found(tmp_path))
    cell = rounds.cell("broker-killed", "tidegate")
    rounds.add(found(tmp_path, 2))
    cell.times["gap_s"] = [2.0, 31.0]
    cell.repeated = {"in_flight": 1_200, "tracker": 3}
    shown = table.by_drill(rounds.cells, rounds.batches)
    assert "| `broker-killed` | Tidegate | 2 | 0 | 0 | 0 | 1,200 in flight, 3 **unexplained** |" in shown
    assert "| 16.5 / 31.0 |" in shown
    assert "| Tidegate | 1 | 2 | 400 | 0 | 0 | 3 |" in table.by_tracker(rounds.cells)


def test_the_pages_say_what_the_file_says() -> None:
    """No figure of a drill is typed by hand."""
    for page, (text, _) in run.pages().items():
        shown = page.read_text(encoding="utf-8")
        said = shown.partition(table.BEGIN)[2].partition(table.END)[0]
        assert said.strip() == text.strip(), f"{page.name}: run python -m bench report"


def test_rounds_of_another_pulsar_have_a_file_of_their_own(tmp_path: Path) -> None:
    assert cells.file_of(PULSAR.version) == cells.FILE
    assert cells.file_of("5.0.1") == cells.FILE.with_name("pulsar-5.0.1.json")
    for name in ("drills.json", "pulsar-5.0.1.json", "pulsar-4.2.4.json"):
        cells.save(cells.Rounds(), tmp_path / name)
    found = cells.other_files(tmp_path)
    assert {version: path.name for version, path in found.items()} == {
        "4.2.4": "pulsar-4.2.4.json",
        "5.0.1": "pulsar-5.0.1.json",
    }
