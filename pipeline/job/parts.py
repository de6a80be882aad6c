"""Requirements of a job: Java and the extra ``spark``; and the version of Spark.

A data source gets filters from 4.1 on, a stream a batch's beginning and size limit from 4.2 on. A cluster's
Spark, or ``SPARK_HOME``'s, may be older than the installed one. Invariant: the checks before a job import
none of these.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tidegate.pipeline.errors import MissingPartError
from tidegate.plugin.shared.extras import how_to_get

JAVA_MIN = 17
SPARK_MIN = (4, 1)
BATCHES_HAVE_LIMITS = (4, 2)
EXTRA = "spark"
_PACKAGES = ("pyspark", "pandas", "pyarrow", "fsspec", "crc32c", "google.protobuf")
_TIMEOUT_S = 60.0


def check_parts(environment: Mapping[str, str]) -> None:
    """Raise ``MissingPartError`` if Spark could not start here."""
    check_packages()
    check_java(environment)


def check_packages() -> None:
    """Raise ``MissingPartError`` if a Python package is missing or Spark's is too old."""
    for name in _PACKAGES:
        try:
            found = importlib.util.find_spec(name)
        except ImportError:
            found = None
        if found is None:
            raise MissingPartError(f"this command needs the Python package {name}: run {how_to_get(EXTRA)}")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # a cluster's own has no metadata
        check_spark(importlib.metadata.version("pyspark"), advice=f"run {how_to_get(EXTRA)}")


def check_spark(version: str, *, advice: str = "install that here and on the cluster") -> None:
    """Raise ``MissingPartError`` if the pipeline does not support this version of Spark."""
    if _parsed(version) < SPARK_MIN:
        wanted = ".".join(map(str, SPARK_MIN))
        raise MissingPartError(f"Spark {version} is too old, {wanted} or newer is needed: {advice}")


def installed() -> str:
    """The version of the PySpark that this process imports."""
    import pyspark  # noqa: PLC0415 the daemon's machine has none

    return pyspark.__version__


def spark_is_at_least(*version: int) -> bool:
    """True if this process imports PySpark of that version or newer."""
    return _parsed(installed()) >= version


def check_java(environment: Mapping[str, str]) -> None:
    """Raise ``MissingPartError`` without a Java for Spark."""
    advice = f"install Java {JAVA_MIN} or newer (Debian: apt-get install openjdk-17-jre-headless)"
    java_home = environment.get("JAVA_HOME")
    where = str(Path(java_home) / "bin") if java_home else environment.get("PATH", "")
    java = shutil.which("java", path=where)
    if java is None:
        if java_home:
            raise MissingPartError(
                f"JAVA_HOME is {java_home}, where there is no bin/java: correct it, or {advice}"
            )
        raise MissingPartError(f"Spark needs Java and there is none: {advice}, or set JAVA_HOME")
    major = _released(java)
    if major is None:
        major = _major(java, environment)
    if major is not None and major < JAVA_MIN:
        raise MissingPartError(
            f"Java {major} is too old for Spark ({java}): {advice}, and set JAVA_HOME to it"
        )


def _released(java: str) -> int | None:
    """The major version in Java's release file, None without one. Starting Java takes 0.1 s and more."""
    try:
        text = (Path(java).resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        return None
    return _number(re.search(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', text, re.MULTILINE))


def _major(java: str, environment: Mapping[str, str]) -> int | None:
    """The major version; None if Java does not say: Spark may then complain."""
    try:
        done = subprocess.run(  # noqa: S603
            [java, "-version"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _number(re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout))


def _number(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    # Up to Java 8, versions were written as 1.8.
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _parsed(version: str) -> tuple[int, ...]:
    """(major, minor). Spark may report an unreadable version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else SPARK_MIN
