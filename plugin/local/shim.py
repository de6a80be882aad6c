"""The path of the built shim, in a checkout and in an installed package alike."""

from __future__ import annotations

from pathlib import Path

SHIM_JAR = Path(__file__).resolve().parents[1] / "jars" / "tidegate-pulsar-shim.jar"
