"""A client in Java, of the Pulsar under test."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.cluster import PULSAR_HOME
from tidegate.plugin.local import assembled, toolchain


def jdk_program(name: str) -> str:
    """The path of ``java``, ``javac`` or ``jar`` of a JDK that reads that Pulsar's classes."""
    jdk = assembled.find_jdk(os.environ)
    assert isinstance(jdk, toolchain.Tool), jdk.text
    return str(jdk.path.resolve().with_name(name))


def java_command(source: Path) -> list[str]:
    """The command that runs the class in ``source`` with that Pulsar's jars; its arguments follow."""
    return [
        jdk_program("java"), "-XX:TieredStopAtLevel=1", "-cp", f"{PULSAR_HOME / 'lib'}/*", str(source)
    ]  # fmt: skip
