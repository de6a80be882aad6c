"""The circumstances of a result: processor, memory, versions, git revision."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import psutil

from bench.harness.results import Machine

ROOT = Path(__file__).parents[2]
# Without tidegate itself: a result has its revision, and an editable install has a stale one.
PACKAGES = ("pulsar-client", "numpy", "pcodec", "pyroaring", "rocksdict", "heapdict")
EXTRA_PACKAGES = ("numba", "polars", "pyarrow")  # of the optional dependencies ``bench``


def machine() -> Machine:
    """The present machine; its load average shows the disturbance at the bench's start."""
    told = _cpuinfo()
    return Machine(
        cpu=cpu_model(told) or platform.processor() or platform.machine(),
        avx512=has_avx512(told),
        cores=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        load_1min_at_start=round(os.getloadavg()[0], 2),
    )


def versions(pulsar_home: Path | None) -> dict[str, str]:
    """Versions of the participants; Pulsar's and Java's only with a Pulsar home."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        found[package] = metadata.version(package)
    for package in EXTRA_PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    if pulsar_home is not None:
        jars = sorted((pulsar_home / "lib").glob("org.apache.pulsar-pulsar-broker-[0-9]*.jar"))
        found["pulsar"] = jars[0].stem.removeprefix("org.apache.pulsar-pulsar-broker-") if jars else "unknown"
        found["java"] = java_version()
    return found


def revision() -> str:
    """The commit that ran, with ``+changes`` if code under version control differs from it."""
    commit = _output(["git", "rev-parse", "--short=12", "HEAD"])
    if not commit:
        return "unknown"
    # Results of an earlier bench are no change of the code.
    code = ["index", "plugin", "pipeline", "bench", ":(exclude)bench/results"]
    changed = _output(["git", "status", "--porcelain", "--untracked-files=no", "--", *code])
    return f"{commit}+changes" if changed else commit


def _cpuinfo() -> str:
    """Linux's description of the processors; empty without one."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""


def cpu_model(cpuinfo: str) -> str | None:
    """The name of the first processor; None if the text has none."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else None


def has_avx512(cpuinfo: str) -> bool | None:
    """True if the processors have AVX-512 (its foundation, which its other parts need). None: unknown."""
    if not cpuinfo:
        return None
    flags = re.search(r"^flags\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return flags is not None and "avx512f" in flags.group(1).split()


def java_version() -> str:
    """The text of ``java -version``, or ``unknown``."""
    found = re.search(r'version "([^"]+)"', _output(["java", "-version"]))
    return found.group(1) if found else "unknown"


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
