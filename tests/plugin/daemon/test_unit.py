"""The unit for systemd: valid, well sandboxed, and the daemon needs no call that it forbids."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.daemons import DaemonProcess
from tests.support.shim_client import ShimClient, entries
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
EXPOSURE_MAX = 2.0
ANALYZE = shutil.which("systemd-analyze")
STRACE = shutil.which("strace")

pytestmark = pytest.mark.skipif(ANALYZE is None, reason="no systemd-analyze here")


@pytest.fixture
def unit() -> str:
    return (ROOT / "deploy/systemd/tidegate.service").read_text(encoding="utf-8")


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert ANALYZE is not None
    return subprocess.run(
        [ANALYZE, "--no-pager", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_it_is_a_unit(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "tidegate.service"
    path.write_text(
        unit.replace("/opt/tidegate/bin/tidegate", sys.executable).replace("=pulsar\n", "=root\n")
    )
    done = analyze("verify", "--man=no", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(path.read_text().replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in analyze("verify", "--man=no", str(path)).stderr


def test_it_is_well_sandboxed(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "tidegate.service"
    path.write_text(unit)
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}", str(path))
    assert done.returncode == 0, done.stdout
    (exposure,) = re.findall(r"Overall exposure level for tidegate.service: ([\d.]+)", done.stdout)
    assert float(exposure) < EXPOSURE_MAX


def _calls(*names: str) -> set[str]:
    """The system calls of sets, whose names begin with @; sets contain sets."""
    found: set[str] = set()
    for name in names:
        lines = analyze("syscall-filter", name).stdout.splitlines()[1:]
        said = {line.strip() for line in lines if line.strip() and "#" not in line}
        found |= {one for one in said if not one.startswith("@")}
        found |= _calls(*(one for one in said if one.startswith("@")))
    return found


class Traced(DaemonProcess):
    """A daemon whose system calls are counted."""

    counts = Path()

    def _prepare(self) -> tuple[list[str], dict[str, str]]:
        command, environment = super()._prepare()
        return [str(STRACE), "-D", "-f", "-qq", "-c", "-o", str(self.counts), *command], environment


@pytest.mark.skipif(STRACE is None, reason="no strace here")
async def test_the_daemon_makes_no_call_that_the_unit_forbids(unit: str, short_dir: Path) -> None:
    allowed, forbidden = (
        re.findall(rf"^SystemCallFilter={sign}(@[\w-]+)$", unit, re.MULTILINE) for sign in ("", "~")
    )
    daemon = Traced(short_dir, socket_path=short_dir / "daemon.sock")
    daemon.counts = short_dir / "counts"
    daemon.spawn()
    try:
        await daemon.ready()
        async with await ShimClient.connect(short_dir / "daemon.sock") as client:
            stream = await client.open("persistent://public/default/orders")
            stream.add(entries(1_000, time.time_ns() // 1_000_000 + 3_600_000))
            await stream.durable()
    finally:
        await asyncio.to_thread(daemon.stop)
    await until(lambda: daemon.counts.stat().st_size > 0)  # the tracer ends after the daemon
    table = daemon.counts.read_text()
    used = {line.split()[-1] for line in table.splitlines()[2:] if line and line.split()[-1].isidentifier()}
    assert {"fdatasync", "accept4", "sendto"} & used, table
    assert used - {"total"} <= _calls(*allowed) - _calls(*forbidden)
