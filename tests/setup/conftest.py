"""Pulsar homes to attach: the distribution's own conf files, and no more of it than attach looks at."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tidegate.plugin.distribution import default_cache_dir, home_of


@pytest.fixture(scope="session")
def distribution() -> Path:
    """The unpacked Pulsar that ``make`` fetches."""
    home = home_of(default_cache_dir(os.environ))
    if not home.is_dir():
        pytest.fail(f"no Pulsar in {home}: run `make pulsar`")
    return home


@pytest.fixture
def home(distribution: Path, tmp_path: Path) -> Path:
    """A Pulsar home of its own for each test."""
    path = tmp_path / "pulsar"
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar").write_bytes(b"the broker")
    (path / "lib" / "org.apache.pulsar-pulsar-broker-common-4.0.8.jar").write_bytes(b"not the broker")
    (path / "conf").mkdir()
    for name in ("broker.conf", "standalone.conf", "bookkeeper.conf"):
        shutil.copy(distribution / "conf" / name, path / "conf" / name)
    return path
