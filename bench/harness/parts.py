"""Where the parts are that a bench on a real broker needs: the Pulsar distribution and the shim's jar."""

from __future__ import annotations

import os
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT

PULSAR_VERSION = "4.0.8"


def pulsar_home() -> Path:
    """The Pulsar distribution in the project's cache; raises BenchError when it is not there."""
    home = Path(
        os.environ.get("PULSAR_HOME") or ROOT / ".cache" / "pulsar" / f"apache-pulsar-{PULSAR_VERSION}"
    )
    if not (home / "bin" / "pulsar").exists():
        raise BenchError(f"no Apache Pulsar in {home}: `make demo` fetches it, or set PULSAR_HOME")
    return home


def shim_jar() -> Path:
    """The shim's jar as the build leaves it; raises BenchError when it is not built."""
    jars = sorted((ROOT / "plugin" / "jars").glob("*.jar"))
    if not jars:
        raise BenchError("the shim's jar is not built: run `make shim` (or `make demo`) first")
    return jars[-1]
