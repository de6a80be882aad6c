"""The table of what many ledgers cost says something of each thing that is done."""

from __future__ import annotations

import pytest

from bench.profile import ledgers


def test_each_thing_that_is_done_has_a_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ledgers, "REPEATS", 1)
    ledgers.main([str(2 * ledgers.FEW)])
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[-3:] == ["1,000", "2,000", "ledgers"]
    assert len(rows) == 11
    names = {row[:32].strip() for row in rows}
    assert len(names) == len(rows)
    assert {"open", "stats", "persist 100 entries"} <= names
    for row in rows:
        few, many, ratio, times = row[32:].split()
        assert times == "x"
        assert min(float(few), float(many), float(ratio)) >= 0
