"""The folder of a verification goes with it, or with the next one; nobody else's does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.s3_server import S3Server
from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.own_folder import LOCK, own_folder, remove_abandoned

OURS = ("held", "plan.json")
FOLDERS = [f"{0:016x}-{number:08x}" for number in range(4)]
WORKS = """
import sys
from tidegate.pipeline.rebuild.files import Files
from tidegate.pipeline.rebuild.own_folder import own_folder
files = Files(sys.argv[1])
with own_folder(files, ("held", "plan.json")):
    files.write("held/0/part", b"x")
    files.write("plan.json", b"{}")
    print("works", flush=True)
    sys.stdin.read()
"""


@contextmanager
def working(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works in a folder; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", WORKS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def there(work: Path) -> set[str]:
    return {one.name for one in work.iterdir()}


def test_what_a_killed_one_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed, alive, of_before, theirs = (tmp_path / name for name in FOLDERS)
    with working(killed), working(theirs):
        assert not remove_abandoned(str(tmp_path), OURS), "they work there"
    (theirs / "thesis").touch()
    of_before.mkdir()
    (of_before / "plan.json").touch()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / LOCK).touch()
    with working(alive):
        assert remove_abandoned(str(tmp_path), OURS) == [killed, theirs]
        assert there(tmp_path) == {alive.name, of_before.name, theirs.name, "notes"}
        assert there(theirs) == {"thesis"}, "what nobody of us has made stays"
        assert there(of_before) == {"plan.json"}, "without a lock nobody knows whether it is abandoned"
        assert there(alive) == {LOCK, *OURS}
    assert there(tmp_path / "notes") == {LOCK}
    assert remove_abandoned(str(tmp_path), OURS) == [alive]
    assert not remove_abandoned(str(tmp_path / "nowhere"), OURS)


def test_however_it_ends_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / FOLDERS[0]
    for fails in (False, True):
        try:
            with own_folder(Files(str(folder)), OURS):
                Files(str(folder)).write("plan.json", b"{}")
                assert there(folder) == {LOCK, "plan.json"}
                if fails:
                    raise PipelineError("the disk is full")
        except PipelineError:
            assert fails
        assert not folder.exists()


def test_at_a_url_there_is_no_lock(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.be_used(monkeypatch)
    work = f"s3://{s3.bucket}/own"
    files = Files(f"{work}/{FOLDERS[0]}")
    with own_folder(files, OURS):
        files.write("plan.json", b"{}")
        assert files.names("") == {"plan.json"}
        assert not remove_abandoned(work, OURS)
        assert files.has("plan.json")
    assert not files.names("")
