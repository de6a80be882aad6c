"""The tables of the docs, from results made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness import report, results
from bench.harness.errors import BenchError
from bench.plots.picture import draw
from tests.support.results import metric, result


def test_a_row_has_ratios_of_medians_first_then_the_spreads_then_the_verdict() -> None:
    measured = metric(
        target=1.0, samples={"tidegate": [0.4, 0.5, 0.6], "in-memory": [50.0], "bucket": [60, 70]}
    )
    made = result(measured)
    assert report.header(made) == [
        "", "vs in-memory", "vs bucket", "tidegate", "in-memory", "bucket", "target",
    ]  # fmt: skip
    assert report.row(made, measured) == [
        "first due message (s)", "100×", "130×", "0.4 / 0.5 / 0.6", "50", "60 / 65 / 70", "≤ 1 met",
    ]  # fmt: skip


def test_a_row_where_the_peer_wins_says_so() -> None:
    measured = metric(samples={"tidegate": [4.0], "in-memory": [1.0], "bucket": [0.0]})
    assert report.row(result(measured), measured)[1:3] == ["0.25×", "0.00×"]


def test_a_row_without_a_peers_samples_has_dashes_and_does_not_fail() -> None:
    measured = metric(samples={"in-memory": [1.0]}, target=1.0)
    assert report.row(result(measured), measured)[1:] == ["–", "–", "–", "1", "–", "≤ 1"]


@pytest.mark.parametrize(
    ("samples", "verdict"),
    [
        ([0.5, 0.9], "≤ 1 met"),
        ([0.5, 0.6, 1.2], "≤ 1 median met"),
        ([1.5, 1.6, 1.7], "≤ 1 **missed**"),
    ],
)
def test_the_verdict_is_of_the_worst_round(samples: list[float], verdict: str) -> None:
    measured = metric(samples={"tidegate": samples}, target=1.0)
    assert report.row(result(measured), measured)[-1] == verdict


def test_a_target_for_more_is_held_the_other_way() -> None:
    measured = metric(samples={"tidegate": [2.0, 4.0]}, target=3.0, better="higher")
    assert report.row(result(measured), measured)[-1] == "≥ 3 median met"


def test_the_page_shows_headline_metrics_by_scenario_and_where_they_come_from() -> None:
    page = report.markdown(
        result(
            metric(samples={"tidegate": [1.0]}),
            metric("detail", headline=False, samples={"tidegate": [1.0]}),
            metric("other", scenario="graceful", samples={"tidegate": [7.0]}),
            notes=["one remark"],
        ),
        "../bench/results/failover.svg",
    )
    assert "| kill -9 | vs in-memory | vs bucket | tidegate |" in page
    assert "| graceful | vs in-memory |" in page
    assert "detail" not in page
    assert "- one remark" in page
    assert "![failover](../bench/results/failover.svg)" in page
    assert "`python -m bench run failover`, 3 rounds, 2026-01-02T03:04Z" in page
    assert "pulsar 4.0.8; revision abcdef" in page.replace("\n", " ")
    assert max(map(len, page.splitlines())) <= report.DOCS_WIDTH


@pytest.mark.parametrize(
    ("avx512", "said"),
    [
        (True, "; a processor with AVX-512, 2 cores, "),
        (False, "; a processor without AVX-512, 2 cores, "),
        (None, "; a processor, 2 cores, "),
    ],
)
def test_where_it_ran_says_whether_there_is_avx_512(avx512: bool | None, said: str) -> None:
    place = result().machine.model_copy(update={"avx512": avx512})
    assert said in report.describe(result(machine=place))


def test_every_table_of_the_page_has_as_many_cells_as_titles() -> None:
    page = report.markdown(result(metric(samples={"tidegate": [1.0], "bucket": [2.0]})))
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {8}


MANY = ["tidegate", "redis", "postgresql", "rocksdb", "qmq", "levels", "heapq"]


def test_many_peers_have_a_line_each_with_the_ratio_before_the_spread() -> None:
    adds = metric(
        "adds", unit="k/s", better="higher", samples={"tidegate": [8.0, 10.0, 12.0], "redis": [2.0]}
    )
    lost = metric("lost", unit="entries", target=0, samples={"tidegate": [0], "heapq": [7]})
    assert report.grid(result(adds, lost, peers=MANY), "1 M", [adds, lost]) == [
        ["1 M", "adds (k/s)", "lost (entries)"],
        ["tidegate", "8 / 10 / 12", "0 · 0 met"],
        ["redis", "5.0× · 2", "–"],
        ["heapq", "–", "7"],
    ]


def test_many_peers_without_us_have_no_ratios() -> None:
    adds = metric("adds", samples={"redis": [2.0]})
    assert report.line(result(adds, peers=MANY), "redis", [adds]) == ["redis", "2"]


def test_few_peers_keep_a_column_each() -> None:
    measured = metric(samples={"tidegate": [1.0]})
    made = result(measured)
    assert report.grid(made, "kill -9", [measured]) == [
        ["kill -9", *report.header(made)[1:]],
        report.row(made, measured),
    ]


def test_the_tables_of_many_peers_are_whole_on_the_page_and_on_the_terminal(tmp_path: Path) -> None:
    figures = [metric(f"figure {at}", samples={"tidegate": [1.0], "qmq": [float(at)]}) for at in range(8)]
    made = result(*figures, peers=MANY)
    page = report.markdown(made)
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {10}
    assert page.count("| qmq |") == 1
    tables = report.tables(made)
    assert [len(table.columns) for table in tables] == [7, 3]
    assert {table.row_count for table in tables} == {2}
    assert draw(made, tmp_path / "peers.json").is_file()


def test_only_what_is_between_the_markers_is_replaced() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    once = report.replace_between(page, report.BEGIN, report.END, "new")
    assert once == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.replace_between(once, report.BEGIN, report.END, "new") == once


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(BenchError, match="markers"):
        report.replace_between("no markers", report.BEGIN, report.END, "new")


def test_a_saved_result_is_loaded_as_it_was(tmp_path: Path) -> None:
    made = result(metric(samples={"tidegate": [0.1, 0.2]}))
    results.save(made, tmp_path / "deep" / "failover.json")
    assert results.load_all(tmp_path / "deep") == [made]


def test_a_result_of_before_avx_512_was_asked_for_is_loaded_and_saved_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "failover.json"
    results.save(result(), path)
    assert "avx512" not in path.read_text(encoding="utf-8")
    assert results.load(path).machine.avx512 is None
    asked = result(machine=result().machine.model_copy(update={"avx512": False}))
    results.save(asked, path)
    assert results.load(path) == asked


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"bench": 1}', encoding="utf-8")
    with pytest.raises(BenchError, match=r"other\.json is not a bench result"):
        results.load(path)
