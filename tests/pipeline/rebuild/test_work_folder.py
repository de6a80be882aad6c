"""The folder that a rebuild or a verification works in: what is not its own is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.pipeline.errors import OptionError
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.job import OURS, kept_plan
from tidegate.pipeline.rebuild.plan import Plan


@pytest.mark.parametrize("name", OURS)
def test_what_no_job_has_made_is_left_alone(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name
    if name.endswith(".json"):
        theirs.write_text(json.dumps({"of": "somebody else"}))
    else:
        theirs.mkdir()
        (theirs / "thesis").touch()
    with pytest.raises(OptionError, match=rf"/{name} is there and no job of Tidegate made it"):
        kept_plan(Files(str(tmp_path)))
    assert theirs.exists()


def test_what_a_former_job_has_left_is_found_however_far_it_was_removed(tmp_path: Path) -> None:
    files = Files(str(tmp_path / "work"))
    assert kept_plan(files) is None
    files.make()
    files.write_json(OURS[-1], Plan((), ()).as_json())
    for name in OURS[:-1]:
        files.write(f"{name}/part" if "." not in name else name, b"{}")
    for name in OURS:
        assert kept_plan(files) == Plan((), ())
        files.remove([name])
    assert kept_plan(files) is None
    assert not (tmp_path / "work").exists()
