"""Links and other users' files in a Pulsar home: refused, also when they come between a look and a write."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path

import pytest

from tidegate.plugin.attach.attachment import inspect
from tidegate.plugin.attach.broker_keys import Wanted
from tidegate.plugin.attach.folder import Folder
from tidegate.plugin.attach.plan import carry_out, plan_attach, plan_detach
from tidegate.plugin.errors import AttachError

JAR = b"a shim"
SOCKET = Path("/run/tidegate/t.sock")
PLACES = (
    "lib/tidegate-pulsar-shim.jar",
    "lib/tidegate-pulsar-shim-0.0.9.jar",
    "conf/broker.conf",
    "conf/standalone.conf",
    "conf/tidegate",
    "conf/tidegate/broker.conf",
    "conf/tidegate/attach.json",
    "lib",
    "conf",
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    return path


def attach(home: Path) -> None:
    carry_out(plan_attach(home, Wanted(), JAR, SOCKET))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def move_out(path: Path, outside: Path) -> None:
    """Leave a link to it in its place."""
    target = outside / path.name
    if path.exists():
        path.rename(target)
    else:
        target.write_bytes(b"of somebody else")
    path.symlink_to(target)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("attached", [False, True])
def test_a_link_is_refused_wherever_it_is(home: Path, outside: Path, place: str, attached: bool) -> None:
    if attached:
        attach(home)
    path = home / place
    path.parent.mkdir(exist_ok=True)
    move_out(path, outside)
    before = contents(outside), contents(home)
    with pytest.raises(AttachError) as refused:
        plan_attach(home, Wanted(), JAR, SOCKET)
    assert str(refused.value).startswith(f"{path} is a link")
    with pytest.raises(AttachError) as refused:
        plan_detach(home)
    assert str(refused.value).startswith(f"{path} is a link")
    assert (contents(outside), contents(home)) == before
    assert path.is_symlink()


def test_the_home_itself_may_be_a_link(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "current"
    link.symlink_to(home)
    attach(link)
    assert inspect(home).attached


@pytest.mark.parametrize("place", PLACES)
def test_a_link_that_comes_after_the_look_is_not_followed(home: Path, outside: Path, place: str) -> None:
    plan = plan_attach(home, Wanted(), JAR, SOCKET)
    path = home / place
    path.parent.mkdir(exist_ok=True)
    move_out(path, outside)
    before = contents(outside)
    with contextlib.suppress(AttachError):
        carry_out(plan)
    assert contents(outside) == before


def test_a_home_that_becomes_another_after_the_look_is_refused(home: Path, outside: Path) -> None:
    plan = plan_attach(home, Wanted(), JAR, SOCKET)
    (outside / "lib").mkdir()
    (outside / "conf").mkdir()
    home.rename(home.with_name("former"))
    home.symlink_to(outside)
    with pytest.raises(AttachError, match="has become another directory"):
        carry_out(plan)
    assert contents(outside) == {}


@pytest.mark.parametrize("place", ["lib", "conf/tidegate"])
def test_a_directory_that_keeps_changing_into_a_link(home: Path, outside: Path, place: str) -> None:
    """Whoever owns the home wins no race: nothing is ever written where the link leads to."""
    attach(home)
    path, aside = home / place, home / "aside"
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):  # attach makes one, or writes into it, in between
                if path.is_symlink():
                    path.unlink()
                if aside.exists():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.rename(aside)
                path.symlink_to(outside)
                path.unlink()
                aside.rename(path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(300):
            with contextlib.suppress(AttachError):
                carry_out(plan_attach(home, Wanted(horizon_ms=1_000 + number), b"%d" % number, SOCKET))
            assert contents(outside) == {}
    finally:
        over.set()
        swapping.join()


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_bytes(b"clusterName=x")
    (tmp_path / "conf").mkdir()
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with Folder(descriptor, tmp_path, os.geteuid() + 1) as folder:
        for act in (folder.read, folder.status, folder.folder):
            name = "conf" if act == folder.folder else "broker.conf"
            with pytest.raises(AttachError, match=r"and the Pulsar home to .*, run: chown"):
                act(name)


def test_what_is_no_file_is_refused(home: Path) -> None:
    (home / "conf" / "broker.conf").unlink()
    os.mkfifo(home / "conf" / "broker.conf")
    with pytest.raises(AttachError, match=r"broker\.conf: it is not a file"):
        attach(home)


def test_what_cannot_be_looked_at_is_said_in_one_line(tmp_path: Path) -> None:
    with Folder.home(tmp_path) as folder:
        assert folder.read_if_there("none") is None
        with pytest.raises(AttachError, match="cannot read"):
            folder.read_if_there("x" * 300)


def test_modes_lose_what_nobody_needs(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_bytes(b"before")
    (tmp_path / "broker.conf").chmod(0o4755)
    with Folder.home(tmp_path) as folder:
        like = folder.status("broker.conf")
        assert like is not None
        folder.replace("broker.conf", b"after", like)
    assert (tmp_path / "broker.conf").stat().st_mode & 0o7777 == 0o755
