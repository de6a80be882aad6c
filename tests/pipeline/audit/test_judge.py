"""Deliveries with faults of known number, judged at once and in rounds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.pipeline.audit.judge import RECEIVED, SENT, Verdict, find_out_of_order, judge
from tidegate.pipeline.audit.rounds import FURTHEST, KEPT, OPEN, Limits, play, play_order
from tidegate.plugin.checks import RepeatCause

Sent = tuple[str, str | None, int, int | None]
Receipt = tuple[str, str, int, int | None]


def sent_table(rows: list[Sent]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    return pa.table([columns[0], ["t"] * len(rows), *columns[1:]], schema=SENT)


def received_table(rows: list[Receipt]) -> pa.Table:
    return pa.table(list(zip(*rows, strict=True)) or [()] * 4, schema=RECEIVED)


def counts(table: pa.Table) -> Counter[tuple[str, Verdict]]:
    pairs = zip(table["subscription"].to_pylist(), table["verdict"].to_pylist(), strict=True)
    return Counter((name, Verdict(verdict)) for name, verdict in pairs)


class TestJudge:
    def test_every_kind(self) -> None:
        sent = sent_table(
            [
                ("a", None, 1, 10),
                ("b", "k", 1, 20),
                ("c", None, 1, None),
                ("d", None, 1, 99),
                ("a", None, 2, 10),
            ]
        )
        received = received_table(
            [("a", "s", 9, 0), ("b", "s", 20, 0), ("b", "s", 30, 2), ("b", "s", 31, 0), ("x", "s", 5, None)]
        )
        table = judge(sent, received, ["s"], until_ms=50)
        assert counts(table) == {
            ("", Verdict.SENT_TWICE): 1,
            ("s", Verdict.DELIVERED): 2,
            ("s", Verdict.REPEATED): 2,
            ("s", Verdict.LOST): 1,
            ("s", Verdict.PENDING): 1,
            ("s", Verdict.UNKNOWN): 1,
        }
        by_id = {(row["message_id"], row["verdict"]): row for row in table.to_pylist()}
        assert by_id["a", Verdict.DELIVERED]["early"]
        assert not by_id["b", Verdict.DELIVERED]["early"]
        assert by_id["x", Verdict.UNKNOWN]["topic"] is None
        causes = [row["cause"] for row in table.to_pylist() if row["verdict"] == Verdict.REPEATED]
        assert sorted(causes) == [RepeatCause.REDELIVERED, RepeatCause.FORGOTTEN]

    def test_each_subscription_should_have_everything(self) -> None:
        sent = sent_table([("a", None, 1, 10), ("b", None, 1, 10)])
        received = received_table([("a", "s", 11, 0), ("b", "s", 11, 0), ("a", "z", 11, 0)])
        assert counts(judge(sent, received, ["s", "z"])) == {
            ("s", Verdict.DELIVERED): 2,
            ("z", Verdict.DELIVERED): 1,
            ("z", Verdict.LOST): 1,
        }

    def test_what_was_sent_later_is_not_lost_either(self) -> None:
        sent = sent_table(
            [("a", None, 40, None), ("b", None, 60, None), ("c", None, 60, 50), ("d", None, 40, 50)]
        )
        table = judge(sent, received_table([]), ["s"], until_ms=50)
        assert {row["message_id"]: row["verdict"] for row in table.to_pylist()} == {
            "a": Verdict.LOST,
            "b": Verdict.PENDING,
            "c": Verdict.PENDING,
            "d": Verdict.LOST,
        }

    def test_nothing_was_received(self) -> None:
        table = judge(sent_table([("a", None, 1, 10)]), received_table([]), [""])
        assert counts(table) == {("", Verdict.LOST): 1}

    def test_nothing_was_sent(self) -> None:
        table = judge(sent_table([]), received_table([("a", "s", 1, 0)]), ["s"])
        assert counts(table) == {("s", Verdict.UNKNOWN): 1}

    def test_out_of_order_within_a_key(self) -> None:
        sent = sent_table([("a", "k", 1, 10), ("b", "k", 1, 20), ("c", "z", 1, 5)])
        received = received_table([("b", "s", 21, 0), ("a", "s", 22, 0), ("c", "s", 30, 0)])
        late = find_out_of_order(judge(sent, received, ["s"]))
        assert [(row["message_id"], row["verdict"]) for row in late.to_pylist()] == [
            ("a", Verdict.OUT_OF_ORDER)
        ]


@dataclass
class Faults:
    """A record of deliveries with faults, and how many of each there are."""

    sent: list[Sent] = field(default_factory=list)
    received: list[Receipt] = field(default_factory=list)
    expected: Counter[Verdict] = field(default_factory=Counter)
    early: int = 0


@st.composite
def faults(draw: st.DrawFn) -> Faults:
    made = Faults()
    for number in range(draw(st.integers(0, 25))):
        due = 1000 + number * 10
        made.sent.append((f"m{number}", None, number, due))
        fault = draw(st.sampled_from(["none", "none", "lost", "early", "twice"]))
        if fault == "lost":
            made.expected[Verdict.LOST] += 1
            continue
        made.expected[Verdict.DELIVERED] += 1
        made.early += fault == "early"
        made.received.append((f"m{number}", "s", due - (5 if fault == "early" else -3), 0))
        if fault == "twice":
            made.expected[Verdict.REPEATED] += 1
            made.received.append((f"m{number}", "s", due + 50, 1))
    for number in range(draw(st.integers(0, 3))):
        made.expected[Verdict.UNKNOWN] += 1
        made.received.append((f"x{number}", "s", 1000 + number, None))
    return made


def told(rows: list[dict[str, object]]) -> tuple[Counter[Verdict], int]:
    found = Counter(Verdict(row["verdict"]) for row in rows)  # type: ignore[arg-type]
    return found, sum(bool(row["early"]) for row in rows)


@settings(deadline=None)
@given(faults())
def test_injected_faults_are_found(made: Faults) -> None:
    rows = judge(sent_table(made.sent), received_table(made.received), ["s"]).to_pylist()
    assert told(rows) == (made.expected, made.early)


def in_rounds(
    rounds: list[tuple[list[Sent], list[Receipt], int]], names: tuple[str, ...] = ("s",)
) -> tuple[list[dict[str, object]], int]:
    """(results of all rounds, the rows kept after the last one)."""
    open_, kept = OPEN.empty_table(), KEPT.empty_table()
    found: list[dict[str, object]] = []
    for sent, received, watermark_ms in rounds:
        new_sent = sent_table(sent)
        for name in ("told_lost", "got"):
            new_sent = new_sent.append_column(name, pa.array(np.zeros(len(sent), np.int64)))
        new_received = received_table(received).append_column(
            "told", pa.array([False] * len(received), pa.bool_())
        )
        limits = Limits(watermark_ms, 100, 1000, names)
        result = play(pa.concat_tables([open_, new_sent]), pa.concat_tables([kept, new_received]), limits)
        found += result.told.to_pylist()
        open_, kept = result.open, result.kept
    return found, open_.num_rows + kept.num_rows


@settings(deadline=None)
@given(faults(), st.data())
def test_rounds_tell_the_same_as_one_look(made: Faults, data: st.DataObject) -> None:
    """However what is recorded is cut into rounds: nothing twice, nothing left out, and nothing is kept."""
    events = [("sent", one, one[2]) for one in made.sent] + [("got", two, two[2]) for two in made.received]
    events.sort(key=lambda event: event[2])
    number = data.draw(st.integers(1, 5))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), min_size=number - 1, max_size=number - 1)))
    rounds = []
    for begin, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
        part = events[begin:end]
        latest = max((event[2] for event in events[:end]), default=0)
        rounds.append(
            (
                [one for kind, one, _ in part if kind == "sent"],
                [two for kind, two, _ in part if kind == "got"],
                latest - 20,
            )
        )
    rounds.append(([], [], 1_000_000))
    rows, left = in_rounds(rounds)  # type: ignore[arg-type]
    assert told(rows) == (made.expected, made.early)
    assert left == 0


class TestRounds:
    def test_lost_and_found_again(self) -> None:
        rows, left = in_rounds(
            [([("a", None, 1, 10)], [], 50), ([], [], 111), ([], [], 120), ([], [("a", "s", 500, 0)], 500)]
        )
        assert [Verdict(row["verdict"]) for row in rows] == [  # type: ignore[arg-type]
            Verdict.LOST,
            Verdict.DELIVERED,
            Verdict.FOUND,
        ]
        assert left == 2, "it may still be repeated"

    def test_a_receipt_whose_message_comes_later(self) -> None:
        rows, _ = in_rounds([([], [("a", "s", 11, 0)], 5), ([("a", None, 1, 10)], [], 50)])
        assert [Verdict(row["verdict"]) for row in rows] == [Verdict.DELIVERED]  # type: ignore[arg-type]

    def test_an_earlier_receipt_that_comes_later_is_a_repeat(self) -> None:
        rows, _ = in_rounds(
            [([("a", None, 1, 10)], [("a", "s", 30, 0)], 5), ([], [("a", "s", 9, 0)], 50), ([], [], 60)]
        )
        assert told(rows) == ({Verdict.DELIVERED: 1, Verdict.REPEATED: 1}, 0)

    def test_a_message_recorded_twice_is_told_once(self) -> None:
        rows, _ = in_rounds([([("a", None, 1, 10)], [], 5), ([("a", None, 1, 10)], [], 6), ([], [], 7)])
        assert told(rows) == ({Verdict.SENT_TWICE: 1}, 0)

    def test_subscriptions_are_apart(self) -> None:
        rows, _ = in_rounds(
            [([("a", None, 1, 10)], [("a", "s", 11, 0)], 20), ([], [], 200)], names=("s", "z")
        )
        table = [(row["subscription"], Verdict(row["verdict"])) for row in rows]  # type: ignore[arg-type]
        assert table == [("s", Verdict.DELIVERED), ("z", Verdict.LOST)]


@pytest.mark.parametrize("cut", range(5))
def test_order_over_rounds(cut: int) -> None:
    sent = sent_table([(f"m{n}", "k", 1, 10 * n) for n in range(4)])
    received: list[Receipt] = [
        ("m1", "s", 100, 0),
        ("m0", "s", 101, 0),
        ("m3", "s", 102, 0),
        ("m2", "s", 103, 0),
    ]
    rows = judge(sent, received_table(received), ["s"])
    rows = rows.sort_by("received_at_ms")
    furthest, found = FURTHEST.empty_table(), []
    for part in (rows.slice(0, cut), rows.slice(cut)):
        bad, furthest = play_order(furthest, part, Limits(50, 100, 1000, ("s",)))
        found += [(row["message_id"], row["verdict"]) for row in bad.to_pylist()]
    assert found == [("m0", Verdict.OUT_OF_ORDER), ("m2", Verdict.OUT_OF_ORDER)]
    assert furthest.num_rows == 1
    _, furthest = play_order(furthest, rows.slice(0, 0), Limits(5000, 100, 1000, ("s",)))
    assert furthest.num_rows == 0, "a key of which nothing comes any more is forgotten"
