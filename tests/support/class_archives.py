"""Archives of classes for the tests' JVMs: each start costs 30 to 50 % less processor time.

``python -m tests.support.class_archives`` makes one for Pulsar's programs and one for Spark's, by running
each once (JDK 17's ``-XX:ArchiveClassesAtExit``). A JVM maps one only if its class path begins with the
archive's and has empty directories only, so Pulsar's programs get their logging configuration by its path.
Without an archive everything runs as well.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate.plugin.local import toolchain
from tidegate.plugin.local.assembled import pulsar_home
from tidegate.plugin.local.broker import Broker
from tidegate.plugin.local.process import LOOPBACK, LocalProcessError
from tidegate.plugin.local.pulsar_process import Jvm

QUICK_JAVA = " ".join(Jvm.gc)
"""A test's JVM lives for seconds or minutes: optimizations for later are not worth their time."""

_FOLDER = Path(__file__).parents[2] / "build" / "classes"
_NO_CONF = _FOLDER / "no-conf"
# The start script puts this file's directory on the class path; ours overrides its name.
_NAMED_LOGGING = {"PULSAR_LOG_CONF": str(_NO_CONF / "log4j2.yaml")}
_STOP_TIMEOUT_S = 300.0
_SPARK_TIMEOUT_S = 300.0
_SPARK_JOB = """
import sys
from pyspark.sql import SparkSession, functions
spark = SparkSession.builder.getOrCreate()
rows = spark.range(1000).withColumn("key", functions.col("id") % 7)
rows.groupBy("key").count().orderBy("key").write.parquet(sys.argv[1])
assert spark.read.parquet(sys.argv[1]).count() == 7
"""


def pulsar_environment() -> dict[str, str]:
    """The environment in which Pulsar's programs use the archive; empty without one."""
    home = _pulsar_home()
    archive = _pulsar_archive()
    if archive is None or not archive.is_file():
        return {}
    return _NAMED_LOGGING | {"PULSAR_EXTRA_OPTS": f"{_logging(home)} -XX:SharedArchiveFile={archive}"}


def spark_java() -> str:
    """The options of Spark's JVM, as one string."""
    archive = _spark_archive()
    if archive is None or not archive.is_file():
        return QUICK_JAVA
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={archive}"


def _pulsar_home() -> Path:
    return Path(os.environ.get("TIDEGATE_TEST_PULSAR_HOME") or pulsar_home(os.environ))


def _pulsar_archive() -> Path | None:
    return _archive("pulsar", _pulsar_home() / "lib")


def _spark_archive() -> Path | None:
    home = _spark_home()
    return None if home is None else _archive("spark", home / "jars")


def _spark_home() -> Path | None:
    found = importlib.util.find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


@functools.cache
def _java() -> Path | None:
    jdk = toolchain.find_jdk(os.environ)
    return None if isinstance(jdk, toolchain.Problem) else jdk.path.resolve()


def _archive(name: str, jars: Path) -> Path | None:
    """The place of the archive of these jars for this JVM; None without either. Each has its own name."""
    java = _java()
    if java is None or not jars.is_dir():
        return None
    key = repr((str(java), java.stat().st_mtime_ns, str(jars.resolve()), jars.stat().st_mtime_ns))
    return _FOLDER / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.jsa"


def _logging(home: Path) -> str:
    return f"-Dlog4j.configurationFile={home / 'conf' / 'log4j2.yaml'}"


def _run_pulsar(archive: Path, work_dir: Path) -> None:
    """A standalone has the classes of a broker and of a bookie; the shim is elsewhere in each test."""
    home = _pulsar_home()
    broker = Broker(home, work_dir, jvm_options=[_logging(home), f"-XX:ArchiveClassesAtExit={archive}"])
    try:
        broker.start()
        broker.stop(_STOP_TIMEOUT_S)
    finally:
        broker.kill()


def _run_spark(archive: Path, work_dir: Path) -> None:
    job = work_dir / "job.py"
    job.write_text(_SPARK_JOB)
    subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]",
            "--driver-java-options", f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={archive}",
            "--conf", "spark.ui.enabled=false", str(job), str(work_dir / "rows"),
        ],
        env=os.environ | {"SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SPARK_TIMEOUT_S,
        check=True,
    )  # fmt: skip


def _make(archive: Path, run: Callable[[Path, Path], None]) -> None:
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="tidegate-") as folder:
            run(unfinished, Path(folder))
        unfinished.replace(archive)
    except (LocalProcessError, OSError, subprocess.SubprocessError) as error:
        print(f"no {archive.name}, so that the tests take longer: {error}", file=sys.stderr)


def _main() -> None:
    runs = {_pulsar_archive(): _run_pulsar, _spark_archive(): _run_spark}
    missing = {path: run for path, run in runs.items() if path is not None and not path.is_file()}
    if not missing:
        return
    print("archiving the classes that the JVMs of the tests load")
    _NO_CONF.mkdir(parents=True, exist_ok=True)
    for former in set(_FOLDER.glob("*.jsa")) - runs.keys():
        former.unlink()
    os.environ |= _NAMED_LOGGING | {"PULSAR_GC": QUICK_JAVA}
    os.environ.pop("PULSAR_EXTRA_OPTS", None)
    with ThreadPoolExecutor() as pool:
        list(pool.map(_make, missing.keys(), missing.values()))


if __name__ == "__main__":
    _main()
