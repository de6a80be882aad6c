"""`make bench-peers` where it need not, or may not, install anything. Programs are stand-ins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from bench.harness.machine import ROOT

SCRIPT = ROOT / "bench" / "install_servers"
INITDB = ("15", "bin", "initdb")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A PATH with nothing on it but what the script itself needs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("bash", "id"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def stand_in(folder: Path, name: str, text: str = "") -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def run(programs: Path) -> subprocess.CompletedProcess[str]:
    postgresql = programs.parent / "postgresql"
    return subprocess.run(
        [str(programs / "bash"), str(SCRIPT)],
        env={"PATH": str(programs), "POSTGRESQL_PROGRAMS": str(postgresql)},
        check=False,
        capture_output=True,
        text=True,
    )


def test_nothing_is_installed_where_both_are(programs: Path) -> None:
    stand_in(programs, "redis-server")
    initdb = programs.parent.joinpath("postgresql", *INITDB)
    initdb.parent.mkdir(parents=True)
    initdb.touch()
    stand_in(programs, "apt-get", "echo called; exit 9")
    done = run(programs)
    assert (done.returncode, done.stdout) == (0, "Redis and PostgreSQL are here\n")


def test_where_there_is_no_apt_the_user_is_told_what_to_install(programs: Path) -> None:
    done = run(programs)
    assert done.returncode == 1
    assert done.stderr == (
        "bench: install redis-server postgresql with this system's package manager, "
        "then run make bench-peers again\n"
    )


@pytest.mark.parametrize("sudo", [None, "exit 1"])
def test_who_may_not_install_is_given_the_command(programs: Path, sudo: str | None) -> None:
    stand_in(programs, "redis-server")
    stand_in(programs, "apt-get", "echo called; exit 9")
    stand_in(programs, "id", "echo 1000")
    if sudo is not None:
        stand_in(programs, "sudo", sudo)
    done = run(programs)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "bench: postgresql must be installed by root; "
        "run: sudo apt-get install -y --no-install-recommends postgresql\n"
    )
