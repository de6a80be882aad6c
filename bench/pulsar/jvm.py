"""The Java part of the benches (bench/java), compiled once into build/, run on a Pulsar's own jars: its own
code is measured.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.harness.errors import BenchError
from bench.harness.machine import ROOT
from bench.harness.parts import PULSAR_VERSION, pulsar_home

SOURCES = ROOT / "bench" / "java"
CLASSES = ROOT / "build" / "bench-java"
OPTIONS = (
    f"-Dbench.pulsarVersion={PULSAR_VERSION}",
    f"-Dlog4j2.configurationFile={(SOURCES / 'log4j2.properties').as_uri()}",
    # As in Pulsar's start script: netty reaches memory outside the heap directly.
    "-Dio.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)


def compiled() -> Path:
    """The folder with the classes of bench/java, compiled if they are not there yet.

    Raises BenchError with the compiler's words, or if there is no compiler.
    """
    sources = sorted(SOURCES.glob("*.java"))
    digest = hashlib.sha256(str(pulsar_home()).encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    target = CLASSES / digest.hexdigest()[:16]
    if target.exists():
        return target
    CLASSES.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed: another process may be compiling the same classes.
    fresh = Path(tempfile.mkdtemp(dir=CLASSES))
    try:
        _javac(sources, fresh)
        if not target.exists():
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


def _javac(sources: Sequence[Path], classes: Path) -> None:
    command = ["javac", "-nowarn", "-XDignore.symbol.file", "-d", str(classes)]
    try:
        done = subprocess.run(
            [*command, "-cp", str(pulsar_home() / "lib" / "*"), *map(str, sources)],
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise BenchError("no javac found: install a JDK 17 or newer") from error
    if done.returncode:
        raise BenchError(f"bench/java does not compile:\n{done.stderr}")


def command(
    main: str, arguments: Sequence[str], *, options: Sequence[str], jars: Sequence[Path] = ()
) -> list[str]:
    """The command that runs a class of bench/java; ``jars`` come before Pulsar's own."""
    class_path = [compiled(), *jars, pulsar_home() / "lib" / "*"]
    return [
        "java", *options, *OPTIONS,
        "-cp", os.pathsep.join(map(str, class_path)),
        main, *arguments,
    ]  # fmt: skip
