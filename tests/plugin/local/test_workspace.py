"""The directory of a demo or of drills: one run at a time, and nothing of anybody else's is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.plugin.local.workspace import workspace
from tidegate.plugin.shared.stop import RunError

BUSY = "another demo runs"


def test_what_an_earlier_run_left_is_emptied(tmp_path: Path) -> None:
    out_dir = tmp_path / "out"
    with workspace(out_dir, ("work",), busy=BUSY) as socket_dir:
        (out_dir / "work" / "log").write_text("said")
        assert socket_dir.is_dir()
    assert (out_dir / "work" / "log").exists(), "who wants to read it still can"
    assert not socket_dir.exists()
    with workspace(out_dir, ("work",), busy=BUSY):
        assert not list((out_dir / "work").iterdir())


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        workspace(tmp_path, ("work",), busy=BUSY),
        pytest.raises(RunError, match=rf"^{BUSY} in {tmp_path}: wait for its end, or choose another --out$"),
        workspace(tmp_path, ("work",), busy=BUSY),
    ):
        pass


@pytest.mark.parametrize("folders", [("work",), ("ledgers", "work")])
def test_a_folder_that_was_there_before_is_not_emptied(tmp_path: Path, folders: tuple[str, ...]) -> None:
    theirs = tmp_path / "work" / "thesis"
    theirs.parent.mkdir()
    theirs.write_text("years of it")
    with (
        pytest.raises(RunError, match=rf"^{tmp_path / 'work'} is there and no run of Tidegate made it"),
        workspace(tmp_path, folders, busy=BUSY),
    ):
        pass
    assert theirs.read_text() == "years of it"
    assert [path.name for path in tmp_path.iterdir()] == ["work"], "nothing was made either"


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    out_dir, theirs = tmp_path / "out", tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis").touch()
    with workspace(out_dir, (), busy=BUSY):
        pass
    (out_dir / "work").symlink_to(theirs)
    with (
        pytest.raises(RunError, match=r"^cannot write to "),
        workspace(out_dir, ("work",), busy=BUSY),
    ):
        pass
    assert (theirs / "thesis").exists()
