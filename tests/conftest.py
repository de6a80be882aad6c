"""Shared by every test: the markers, and Pulsar homes to attach."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import class_archives
from tests.support.browser import find_browser
from tests.support.prometheus import find_prometheus
from tests.support.s3_server import S3Server
from tidegate.plugin.local.distribution import default_cache_dir, home_of

# How fast the machine is decides nothing: no test measures speed.
settings.register_profile("tidegate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tidegate")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the tests on a real broker; let Ctrl-C work."""
    config.addinivalue_line(
        "markers", "tidegate_only: about the daemon or strict time; left out with Pulsar's own trackers"
    )
    config.addinivalue_line("markers", "browser: needs Chromium; left out where there is none")
    config.addinivalue_line("markers", "prometheus: needs Prometheus; left out where there is none")
    # A shell makes a background job ignore SIGINT, and the processes started here would inherit that: no
    # Ctrl-C to test.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # For every standalone of the tests, their demos and drills: they live for minutes, and compiling less
    # halves a start's processor time.
    os.environ.setdefault("PULSAR_GC", class_archives.QUICK_JAVA)
    os.environ.update(class_archives.pulsar_environment())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need a missing browser or Prometheus; ``.ci/run`` gets both."""
    for marker, program in (("browser", find_browser()), ("prometheus", find_prometheus())):
        if program is None:
            left_out = {item for item in items if item.get_closest_marker(marker)}
            items[:] = [item for item in items if item not in left_out]
            config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(scope="session")
def distribution() -> Path:
    """The unpacked Pulsar that ``make`` fetches."""
    home = home_of(default_cache_dir(os.environ))
    if not home.is_dir():
        pytest.fail(f"no Pulsar in {home}: run `make pulsar`")
    return home


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """A server of the S3 API with a bucket."""
    with S3Server() as server:
        yield server


@pytest.fixture
def home(distribution: Path, tmp_path: Path) -> Path:
    """A Pulsar home of its own for each test: the conf files, and the jars that attach looks at."""
    path = tmp_path / "pulsar"
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "org.apache.pulsar-pulsar-broker-4.0.8.jar").write_bytes(b"the broker")
    (path / "lib" / "org.apache.pulsar-pulsar-broker-common-4.0.8.jar").write_bytes(b"not the broker")
    (path / "conf").mkdir()
    for name in ("broker.conf", "standalone.conf", "bookkeeper.conf"):
        shutil.copy(distribution / "conf" / name, path / "conf" / name)
    return path
