"""systemd's tools make the user and the folders that the unit takes for granted."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy/systemd"
SYSUSERS, TMPFILES = SYSTEMD / "sysusers.conf", SYSTEMD / "tmpfiles.conf"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("systemd-sysusers") is None, reason="needs root and systemd's tools"
)


def run(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Failed" not in done.stderr, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a system with nothing but its users."""
    for folder in ("etc", "run", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="utf-8")
    (tmp_path / "etc/group").write_text("root:x:0:\n", encoding="utf-8")
    return tmp_path


def setting(name: str) -> str:
    unit = (SYSTEMD / "tidegate.service").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)
    return str(value)


def test_a_dry_run_changes_nothing(root: Path) -> None:
    said = run("systemd-sysusers", "--dry-run", f"--root={root}", SYSUSERS)
    assert "pulsar" in said
    assert "pulsar" not in (root / "etc/passwd").read_text(encoding="utf-8")


def test_the_user_of_the_unit_is_made_and_an_older_one_stays(root: Path) -> None:
    run("systemd-sysusers", f"--root={root}", SYSUSERS)
    passwd = (root / "etc/passwd").read_text(encoding="utf-8")
    user, shell = setting("User"), "/usr/sbin/nologin"
    assert re.search(rf"^{user}:x:\d+:\d+:Apache Pulsar:/var/lib/pulsar:{shell}$", passwd, re.MULTILINE)
    changed = passwd.replace(shell, "/bin/bash")
    (root / "etc/passwd").write_text(changed, encoding="utf-8")
    run("systemd-sysusers", f"--root={root}", SYSUSERS)
    assert (root / "etc/passwd").read_text(encoding="utf-8") == changed


def test_the_folders_of_the_unit_are_made_and_are_its_users(root: Path) -> None:
    run("systemd-sysusers", f"--root={root}", SYSUSERS)
    run("systemd-tmpfiles", "--create", f"--root={root}", TMPFILES)
    passwd = (root / "etc/passwd").read_text(encoding="utf-8")
    (uid,) = re.findall(rf"^{setting('User')}:x:(\d+):", passwd, re.MULTILINE)
    arguments = setting("ExecStart").split()
    data = Path(arguments[arguments.index("--data") + 1])
    socket = Path(arguments[arguments.index("--socket") + 1])
    modes = {data: setting("StateDirectoryMode"), socket.parent: setting("RuntimeDirectoryMode")}
    for path, mode in modes.items():
        status = (root / path.relative_to("/")).stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (int(uid), int(mode, 8)), path
    settings = (root / "etc/tidegate").stat()
    assert (settings.st_uid, stat.S_IMODE(settings.st_mode)) == (0, 0o750)
    assert setting("EnvironmentFile").startswith("-/etc/tidegate/")


def test_an_index_in_them_stays(root: Path) -> None:
    run("systemd-sysusers", f"--root={root}", SYSUSERS)
    index = root / "var/lib/tidegate/CURRENT"
    index.parent.mkdir()
    index.write_bytes(b"index")
    run("systemd-tmpfiles", "--create", "--remove", "--clean", f"--root={root}", TMPFILES)
    assert index.read_bytes() == b"index"
