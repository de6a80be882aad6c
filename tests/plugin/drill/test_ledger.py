"""The ledger on disk: it survives the drill's own death, and says what is wrong with it."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.ledgers import START_US, HandMade, at_us, finished, round_of
from tidegate.plugin.drill.ledger import Ledger, LedgerError, read_ledger
from tidegate.plugin.drill.plan import FAR_MS, Kind, Load, plan
from tidegate.plugin.drill.session import ledgers_of


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    record = finished(tmp_path / "ledger")
    assert record.round == round_of()
    assert record.finished
    assert record.plan.due_ms.tolist()[:2] == [1_000, 1_050]
    assert record.confirmed_us.tolist()[:2] == [at_us(0.1)] * 2
    assert len(record.receipts) == 200
    assert [strike.back_us for strike in record.strikes] == [at_us(6.0)]


def test_the_start_is_told_once_the_messages_before_it_are_stored(tmp_path: Path) -> None:
    def start(made: HandMade) -> None:
        made.at(3.0).event("start")

    record = finished(tmp_path / "ledger", change=start)
    assert record.round.start_us == at_us(3.0)


def test_a_ledger_of_before_tells_no_kinds(tmp_path: Path) -> None:
    finished(tmp_path / "ledger")
    plan_path = tmp_path / "ledger" / "plan.npy"
    columns = np.load(plan_path)[:2]
    columns[1, -1] = FAR_MS
    np.save(plan_path, columns)
    kind = read_ledger(tmp_path / "ledger").plan.kind
    assert (kind[0], kind[-1]) == (Kind.DELAYED, Kind.FAR)


def test_it_survives_a_kill_of_the_drill(tmp_path: Path) -> None:
    directory = tmp_path / "ledger"
    messages = plan(Load(messages=10), 1)
    child = os.fork()
    if child == 0:
        ledger = Ledger(directory, round_of(), messages, lambda: START_US)
        ledger.confirmed(3)
        ledger.received(3, 1, 0, (7, 3), received_us=START_US + 5, acked_us=START_US + 5)
        ledger.event("strike", what="kill", forgets="unstored", rewinds=False)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    record = read_ledger(directory)
    assert not record.finished
    assert record.confirmed_us[3] == START_US
    assert record.receipts["received_us"].tolist() == [START_US + 5]
    assert len(record.strikes) == 1


@pytest.mark.parametrize("last", ["plan.npy", "confirmed.bin", "events.jsonl", ".round.json"])
def test_one_that_was_only_being_made_is_none(tmp_path: Path, last: str) -> None:
    """The drill is killed as it makes that file: the ledgers of the rounds before can be reported."""
    finished(tmp_path / "ledgers" / "before")
    child = os.fork()
    if child == 0:
        sys.addaudithook(lambda what, seen: _die_at(last, what, seen))
        Ledger(tmp_path / "ledgers" / "killed", round_of(), plan(Load(messages=10), 1), lambda: START_US)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert [path.name for path in ledgers_of(tmp_path)] == ["before"]


def _die_at(name: str, what: str, seen: tuple[object, ...]) -> None:
    if what == "open" and str(seen[0]).endswith(f"/{name}"):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_torn_record_is_left_out(tmp_path: Path) -> None:
    made = HandMade(tmp_path / "ledger", [1.0, 2.0])
    made.confirm([0])
    made.receive(0, 1.0)
    made.read()
    for name in ("confirmed.bin", "received.bin", "events.jsonl"):
        with (tmp_path / "ledger" / name).open("ab") as file:
            file.write(b'{"kin')
    record = read_ledger(tmp_path / "ledger")
    assert (len(record.receipts), int((record.confirmed_us > 0).sum()), record.finished) == (1, 1, True)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("round.json", b"{}", "holds no ledger"),
        ("round.json", b"\xff", "holds no ledger"),
        ("plan.npy", b"nothing", "holds no ledger"),
        ("received.bin", b"\xff" * 40, "more messages than were planned"),
        ("events.jsonl", b"not json\n", "holds no ledger"),
    ],
)
def test_one_that_is_damaged_is_said_to_be(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    finished(tmp_path / "ledger")
    (tmp_path / "ledger" / name).write_bytes(content)
    with pytest.raises(LedgerError, match=told):
        read_ledger(tmp_path / "ledger")


def test_one_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot read the ledger"):
        read_ledger(tmp_path / "nothing")


def test_nothing_in_it_is_a_pickle(tmp_path: Path) -> None:
    finished(tmp_path / "ledger")
    np.save(tmp_path / "ledger" / "plan.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(LedgerError):
        read_ledger(tmp_path / "ledger")


def test_the_round_is_readable_json(tmp_path: Path) -> None:
    finished(tmp_path / "ledger")
    assert json.loads((tmp_path / "ledger" / "round.json").read_text())["drill"] == "broker-killed"
