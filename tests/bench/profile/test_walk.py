"""An entry's way through the daemon, and its length: `docs/decisions/layout.md` tells it."""

from __future__ import annotations

from bench.profile import walk


def test_an_entry_passes_the_parts_and_few_functions_besides() -> None:
    found = walk.measured()

    added, due = ({function.name for function in found[name]} for name in ("ADD", "DUE"))
    assert {"Session.apply_frame", "DelayIndex.add", "Journal.append_entries", "Commit.run"} <= added
    assert {"DueTimer._run", "Session.pop_due", "Timeline.pop_due", "Connection.send"} <= due
    assert "Maintenance._look" not in added | due
    # A longer way is a new floor: is it needed?
    assert len(added) <= 140
    assert len(due) <= 100
