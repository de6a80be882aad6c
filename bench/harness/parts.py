"""The parts for a bench on a real broker: the Pulsar distribution and the shim's jar."""

from __future__ import annotations

import os
from pathlib import Path

from bench.harness.errors import BenchError
from tidegate.plugin.local.assembled import VARIABLE
from tidegate.plugin.local.assembled import pulsar_home as chosen_home
from tidegate.plugin.local.distribution import PULSAR
from tidegate.plugin.local.shim import SHIM_JAR

PULSAR_VERSION = os.environ.get(VARIABLE) or PULSAR.version


def pulsar_home() -> Path:
    """The Pulsar that ``make`` fetches, or PULSAR_HOME; raises BenchError if it is missing."""
    home = Path(os.environ.get("PULSAR_HOME") or chosen_home(os.environ))
    if not (home / "bin" / "pulsar").exists():
        raise BenchError(f"no Apache Pulsar in {home}: `make setup` fetches it, or set PULSAR_HOME")
    return home


def shim_jar() -> Path:
    """The shim's jar in the build folder; raises BenchError if it is not built."""
    if not SHIM_JAR.is_file():
        raise BenchError("the shim's jar is not built: run `make setup` first")
    return SHIM_JAR
