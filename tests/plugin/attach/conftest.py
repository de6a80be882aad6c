"""A whole Pulsar to attach, and a daemon."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import daemon_of
from tidegate.plugin.attach import unpacking
from tidegate.plugin.local.daemon import Daemon


@pytest.fixture(autouse=True)
def no_archives_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on who has run a broker on this machine."""
    monkeypatch.setattr(unpacking, "JAVAS_FOLDER", str(tmp_path / "java"))


@pytest.fixture
def whole_home(distribution: Path, tmp_path: Path) -> Path:
    """A whole Pulsar that may be changed: links to the distribution's jars, copies of the rest."""
    home = tmp_path / "pulsar"
    home.mkdir()
    # The start script follows links to find its home, so it is a copy as well.
    shutil.copytree(distribution / "bin", home / "bin")
    shutil.copytree(distribution / "conf", home / "conf")
    (home / "lib").mkdir()
    for jar in (distribution / "lib").iterdir():
        (home / "lib" / jar.name).symlink_to(jar)
    return home


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-") as short,
        daemon_of(tmp_path, Path(short) / "daemon.sock") as daemon,
    ):
        yield daemon
