"""The image: built twice, the same bytes, with a true SBOM; run as Kubernetes would, on a read-only root.

Outside CI, since its base is a fetched Debian: ``make test-image`` (root, mmdebstrap, buildah).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deploy.test_kubernetes import (
    MOUNTS,
    OF_FS_GROUP,
    ROOT,
    TOKEN,
    containers,
    environment,
    mounts,
    values,
)
from tests.support.waiting import wait_until
from tidegate.plugin.attach.attachment import shim_jar
from tidegate.plugin.attach.pulsar_home import JAR_NAME
from tidegate.plugin.local.process import LOOPBACK, free_ports

ASKED = os.environ.get("TIDEGATE_TEST_IMAGE", "")
BASE = "localhost/tidegate-test-base"
NAMES = ("localhost/tidegate-test:first", "localhost/tidegate-test:second")
DATE_S = "1700000000"  # a commit between the two builds would be another date
SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
OF_BASE = "python3,libstdc++6,ca-certificates"
CHROOT = shutil.which("chroot") or "chroot"
SBOM = "opt/tidegate/share/tidegate/sbom.cdx.json"

pytestmark = [
    pytest.mark.skipif(not ASKED, reason="only by make test-image"),
    pytest.mark.timeout(3_000),
]


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, timeout=1_500,
        env={**os.environ, **environment}, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Image:
    """A built image: the folder of its files, and its settings."""

    root: Path
    environment: dict[str, str]
    user: str
    entrypoint: list[str]
    digest: str


def built(name: str, stack: contextlib.ExitStack) -> Image:
    said = run("deploy/image/build", BASE=BASE, IMAGE=name, SOURCE_DATE_EPOCH=DATE_S)
    _, digest, size = said.splitlines()[-1].split(maxsplit=2)
    print(f"{name}: {digest}, {size}")
    container = run("buildah", "from", "--pull-never", name).strip()
    stack.callback(run, "buildah", "rm", container)
    config = json.loads(run("buildah", "inspect", "--type", "image", name))["OCIv1"]["config"]
    given = dict(one.split("=", 1) for one in config["Env"])
    root = Path(run("buildah", "mount", container).strip())
    return Image(root, given, config["User"], config["Entrypoint"], digest)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Image]]:
    """Two builds of the same wheels on the same base."""
    folder = tmp_path_factory.mktemp("image")
    base = Path(os.environ.get("TIDEGATE_TEST_IMAGE_BASE", folder / "base.tar"))
    if not base.exists():
        (release,) = re.findall(
            r"VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8")
        )
        run("mmdebstrap", "--variant=minbase", f"--include={OF_BASE}", release, base, SOURCES)
    with contextlib.ExitStack() as stack:
        begun = time.monotonic()
        container = run("buildah", "from", "scratch").strip()
        run("buildah", "add", container, base, "/")
        run("buildah", "commit", "--rm", "--timestamp", "0", container, BASE)
        stack.callback(run, "buildah", "rmi", "--force", *NAMES, BASE)
        images = [built(name, stack) for name in NAMES]
        print(f"both built in {time.monotonic() - begun:.0f} s")
        yield images


def test_two_builds_have_the_same_bytes(builds: list[Image]) -> None:
    first, second = builds
    assert first.digest == second.digest


def test_it_has_a_user_and_nothing_of_the_build(builds: list[Image]) -> None:
    image = builds[0]
    context = containers(values("emptyDir")["broker"])[1]["securityContext"]
    assert image.user == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert image.entrypoint == ["tidegate"]
    for left in ("wheels", "tools", "install", "requirements.txt"):
        assert not (image.root / left).exists(), left
    for path in (image.root / "opt/tidegate").rglob("*"):
        mode = path.lstat().st_mode
        assert path.is_symlink() or not mode & 0o6022, f"{path}: {mode:o}"


def test_its_sbom_names_what_it_has(builds: list[Image]) -> None:
    bom = json.loads((builds[0].root / SBOM).read_text(encoding="utf-8"))
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    named = {_plain(one["name"]): one["version"] for one in bom["components"]}
    lines = (ROOT / "deploy/image/requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = dict(line.removesuffix(" \\").split("==") for line in lines if "==" in line)
    assert named.pop("tidegate").startswith("0.")
    assert named == {_plain(name): version for name, version in wanted.items()}
    (site,) = (builds[0].root / "opt/tidegate/lib").glob("python3*/site-packages")
    installed = {_plain(one.name.split("-")[0]) for one in site.glob("*.dist-info")}
    assert installed == named.keys() | {"tidegate"}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Host:
    """Starts containers of an image as the values have them, on a root that cannot be written."""

    def __init__(self, image: Image, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.root, self._image = folder, folder / "root", image
        self.broker: dict[str, Any] = values("emptyDir")["broker"]
        files, daemon = containers(self.broker)
        paths = sorted({*mounts(files), *mounts(daemon)})
        for path in paths:
            (image.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self.root.mkdir()
        self._mount(stack, "--bind", image.root, self.root)
        run("mount", "-o", "remount,bind,ro", self.root)
        self._mount(stack, "-t", "proc", "proc", self.root / "proc")
        self._mount(stack, "--bind", "/dev", self.root / "dev")
        for path in paths:
            volume = self.volume(path)
            volume.mkdir(parents=True)
            volume.chmod(OF_FS_GROUP)
            self._mount(stack, "--bind", volume, self.root / path.lstrip("/"))

    def volume(self, path: str) -> Path:
        return self.folder / "volumes" / path.removeprefix(MOUNTS)

    def _mount(self, stack: contextlib.ExitStack, *arguments: str | Path) -> None:
        run("mount", *arguments)
        stack.callback(run, "umount", arguments[-1])

    def start(self, *command: str, **given: str) -> subprocess.Popen[str]:
        uid, gid = self._image.user.split(":")
        user = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
        rights = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        return subprocess.Popen(
            [CHROOT, str(self.root), "setpriv", *user, *rights, *command],
            env={**self._image.environment, **given},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *command: str, **given: str) -> tuple[int, str]:
        process = self.start(*command, **given)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said


@pytest.fixture
def host(builds: list[Image], tmp_path: Path) -> Iterator[Host]:
    with contextlib.ExitStack() as stack:
        yield Host(builds[0], tmp_path, stack)


def test_it_serves_on_a_read_only_root(host: Host) -> None:
    files, container = containers(host.broker)
    token = host.volume("/tidegate/token") / "token"
    token.write_text(TOKEN, encoding="utf-8")
    token.chmod(0o440)
    assert host.run(*files["command"], *files["args"]) == (
        0,
        "/tidegate/lib/tidegate-pulsar-shim.jar\n/tidegate/lib/tidegate-pulsar-servlet.nar\n",
    )
    assert (host.volume("/tidegate/lib") / JAR_NAME).read_bytes() == shim_jar()

    (port,) = free_ports(1)
    given = environment(container) | {"TIDEGATE_HTTP": f"{LOOPBACK}:{port}"}
    daemon = host.start(*container["command"], **given)
    try:
        ready = _answers(f"http://{LOOPBACK}:{port}{container['startupProbe']['httpGet']['path']}")
        wait_until(lambda: daemon.poll() is not None or ready(), "the daemon is ready")
        assert daemon.poll() is None, daemon.communicate()[0]
        code, said = host.run("tidegate", "status", "--json", **given)
        assert code == 0, said
        assert json.loads(said)["daemon"]["ready"] is True
        uid = int(host._image.user.split(":")[0])
        assert (host.volume("/tidegate/run") / "own/tidegate.sock").stat().st_uid == uid
    finally:
        daemon.terminate()
        said, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, said
    assert '"level": "error"' not in said


def test_nothing_else_can_be_written(host: Host) -> None:
    for path in ("/x", "/opt/tidegate/x", "/tmp/x"):  # noqa: S108
        code, said = host.run("touch", path)
        assert code != 0, path
        assert "Read-only file system" in said


def _answers(url: str) -> Callable[[], bool]:
    def ask() -> bool:
        try:
            return httpx.get(url, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    return ask
