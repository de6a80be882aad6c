"""The Debian package: installed into a Debian of its own, used there, and removed.

Outside CI, because the Debian is fetched: ``make test-deb``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = "python3,systemd,libstdc++6,libgcc-s1,zlib1g,man-db"
PACKAGE = os.environ.get("TIDEGATE_DEB", "")
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
SOCKET = "/run/tidegate/tidegate.sock"

pytestmark = [
    pytest.mark.skipif(not PACKAGE, reason="only by make test-deb"),
    pytest.mark.timeout(1_800),
]


class Debian:
    """A Debian in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *command: str, user: str | None = None) -> subprocess.Popen[str]:
        """The command in it, by root or a user."""
        as_user = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return subprocess.Popen(
            ["chroot", str(self.folder), *as_user, *command],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *command: str, user: str | None = None) -> str:
        """Its output; fails if it does."""
        process = self.start(*command, user=user)
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, f"{command}: {output}"
        return output

    def files(self) -> set[str]:
        """Every file and folder but those that dpkg, man and the log keep for themselves."""
        found = subprocess.run(
            ["find", ".", "-xdev", "-printf", "%P\\n"],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        kept = (
            "var/lib/dpkg/",
            "var/log/",
            "var/cache/",
            "etc/passwd",
            "etc/group",
            "etc/shadow",
            "etc/gshadow",
        )
        # systemd-analyze notes the time there.
        noted = {"run/systemd", "run/systemd/systemd-units-load"}
        return {path for path in found.stdout.splitlines() if not path.startswith(kept)} - noted


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debian]:
    given = os.environ.get("TIDEGATE_DEBIAN")
    folder = tmp_path_factory.mktemp("debian") / "root" if given is None else Path(given)
    if given is None:
        release = dict(
            line.split("=", 1) for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        )
        subprocess.run(
            ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}",
             release["VERSION_CODENAME"], str(folder), str(SOURCES)],
            check=True,
        )  # fmt: skip
    (folder / "proc").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "proc", "proc", str(folder / "proc")], check=True)
    try:
        yield Debian(folder)
    finally:
        subprocess.run(["umount", str(folder / "proc")], check=True)
        if given is None:
            shutil.rmtree(folder)


def test_it_is_installed_used_and_removed(debian: Debian) -> None:
    before = debian.files()
    shutil.copy(PACKAGE, debian.folder / "srv/tidegate.deb")
    debian.run("dpkg", "--install", "/srv/tidegate.deb")
    (debian.folder / "srv/tidegate.deb").unlink()

    assert debian.run("tidegate", "--version").startswith("tidegate 0.")
    assert debian.run("dpkg", "--verify", "tidegate") == ""
    unit = "/lib/systemd/system/tidegate.service"
    assert "ExecStart=/usr/bin/tidegate serve" in debian.run("cat", unit)
    assert debian.run("systemd-analyze", "verify", unit) == ""
    assert debian.run("stat", "-c", "%U:%G %a", "/etc/tidegate").split() == ["root:pulsar", "750"]
    assert debian.run("man", "--where", "tidegate-serve").startswith("/usr/share/man/man1/tidegate-serve.1")
    for completion in ("bash-completion/completions/tidegate", "zsh/vendor-completions/_tidegate",
                       "fish/vendor_completions.d/tidegate.fish"):  # fmt: skip
        assert "_TIDEGATE_COMPLETE" in debian.run("cat", f"/usr/share/{completion}")
    assert "not found" not in debian.run("sh", "-c", "find /usr/lib/tidegate -name '*.so*' -exec ldd {} +"), (
        "a library that the package does not depend on"
    )

    _a_daemon_serves(debian)
    _a_broker_is_attached(debian)

    debian.run("dpkg", "--remove", "tidegate")
    assert (debian.folder / "var/lib/tidegate/CURRENT").exists(), "an index stays"
    shutil.rmtree(debian.folder / "var/lib/tidegate")
    debian.run("dpkg", "--purge", "tidegate")
    assert debian.files() - before == set()


def _a_daemon_serves(debian: Debian) -> None:
    """By the unit's own command, as its user; it compiles nothing, for it could not keep it."""
    unit = (debian.folder / "lib/systemd/system/tidegate.service").read_text(encoding="utf-8")
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    user = settings["User"]
    for kind, parent in (("Runtime", "/run"), ("State", "/var/lib")):
        folder, mode = f"{parent}/{settings[f'{kind}Directory']}", settings[f"{kind}DirectoryMode"]
        debian.run("install", "-d", "-o", user, "-g", user, "-m", mode, folder)
    daemon = debian.start(*settings["ExecStart"].split(), user=user)
    try:
        deadline_s = time.monotonic() + 120
        while not (debian.folder / SOCKET.lstrip("/")).exists():
            assert daemon.poll() is None, daemon.communicate()[0]
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        status = json.loads(debian.run("tidegate", "status", "--socket", SOCKET, "--json", user=user))
        assert status["daemon"]["ready"], status
    finally:
        daemon.terminate()
        daemon.communicate(timeout=60)
    assert daemon.returncode == 0


def _a_broker_is_attached(debian: Debian) -> None:
    """The jar is in the package."""
    home = debian.folder / "opt/pulsar"
    for folder in ("bin", "lib", "conf"):
        (home / folder).mkdir(parents=True)
    (home / "bin/pulsar").touch(mode=0o755)
    (home / "lib/org.apache.pulsar-pulsar-broker-4.0.8.jar").touch()
    (home / "conf/broker.conf").write_text("clusterName=test\n", encoding="utf-8")
    assert debian.run("tidegate", "attach", "/opt/pulsar").startswith("attached /opt/pulsar")
    assert (home / "lib/tidegate-pulsar-shim.jar").stat().st_size > 10_000
    debian.run("tidegate", "detach", "/opt/pulsar")
    shutil.rmtree(home)
