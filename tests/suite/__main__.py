"""`make pulsar-suite`: Pulsar's own tests of delayed delivery, with our tracker in the place of Pulsar's.

    python -m tests.suite                                    # those in TESTS
    python -m tests.suite DelayedDeliveryTest#testInterleavedMessages
    TIDEGATE_PULSAR=4.2.4 python -m tests.suite --tracker bucket

The tests are Apache's, from Maven Central: nothing of them is here. They start a broker in their own JVM, on
mocks of ZooKeeper and BookKeeper; a daemon runs beside it. Central has no tests of 5.0.1: it runs those of
4.2.4, moved from Java EE's packages to Jakarta EE's. `testEnableTopicDelayedDelivery` fails with our tracker:
it wants a message five seconds early. Exit codes: 0 all passed, 1 one did not, 2 a part is missing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tidegate.plugin.errors import SetupError, UserError
from tidegate.plugin.local import assembled, toolchain
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.local.distribution import PULSAR, TEMPORARY, default_cache_dir, locked, remove_leftovers
from tidegate.plugin.local.shim import SHIM_JAR
from tidegate.plugin.local.trackers import BUCKET_FACTORY, IN_MEMORY_FACTORY, TIDEGATE_FACTORY

HERE = Path(__file__).parent
LOG_DIR = Path("run") / "suite"
TRACKERS = {"tidegate": TIDEGATE_FACTORY, "in-memory": IN_MEMORY_FACTORY, "bucket": BUCKET_FACTORY}
_PACKAGES = {
    "DelayedDeliveryTest": "broker.service.persistent",
    "KeySharedSubscriptionTest": "client.api",
    "TransactionEndToEndTest": "client.impl",
}
TESTS = (
    "DelayedDeliveryTest",
    "KeySharedSubscriptionTest#testContinueDispatchMessagesWhenMessageDelayed",
    "TransactionEndToEndTest#testDelayedTransactionMessages",
)
"""Classes, and methods of others: those that send delayed messages and look at nothing of one tracker."""
# Its set-up calls a setting of the classic dispatchers, which 5.0 no longer has.
_NOT_WITH = {"5.0.1": frozenset({"KeySharedSubscriptionTest#testContinueDispatchMessagesWhenMessageDelayed"})}
_MIGRATION = "org.apache.tomcat-jakartaee-migration-"
# As Pulsar's own build opens them for its tests.
_OPENED = (
    "java.base/java.io", "java.base/java.lang", "java.base/java.util", "java.base/java.util.zip",
    "java.base/jdk.internal.loader", "java.base/jdk.internal.platform", "java.base/sun.net",
    "java.management/sun.management", "jdk.management/com.sun.management.internal",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.suite", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tests", nargs="*", metavar="CLASS[#METHOD]", help="others than TESTS")
    parser.add_argument("--tracker", choices=tuple(TRACKERS), default="tidegate")
    options = parser.parse_args(arguments)
    try:
        return run(options.tests, options.tracker)
    except UserError as error:
        print(f"tests.suite: {error}", file=sys.stderr)
        return 2


def run(tests: Sequence[str], tracker: str) -> int:
    """Run ``tests``, or those in TESTS, on the Pulsar of ``TIDEGATE_PULSAR``; 0 if all passed, else 1."""
    environment = dict(os.environ)
    version = environment.get(assembled.VARIABLE) or PULSAR.version
    if not lock_of(version).is_file():
        raise SetupError(f"there are no tests of Pulsar {version[:40]} here: try {', '.join(versions())}")
    home = assembled.fetch_home(default_cache_dir(environment), environment)
    jdk = assembled.find_jdk(environment)
    if isinstance(jdk, toolchain.Problem):
        raise SetupError(jdk.text)
    own = suite_jars(version, home.parent, jdk.path, environment)
    work_dir = LOG_DIR / f"{version}-{tracker}"
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    # A socket's path may have about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="tidegate-") as short:
        daemon = Daemon(work_dir / "daemon", socket_path=Path(short) / "daemon.sock")
        try:
            if tracker == "tidegate":
                daemon.start()
            class_path = ":".join([str(work_dir / "classes"), f"{own}/*", str(SHIM_JAR), f"{home / 'lib'}/*"])
            compile_java(jdk.path, class_path, work_dir / "classes")
            command = [
                str(jdk.path), *jvm_options(home, work_dir), "-cp", class_path,
                "PulsarsTests", TRACKERS[tracker],
                str(daemon.socket_path) if tracker == "tidegate" else "",
                *map(full_name, tests or default_tests(version)),
            ]  # fmt: skip
            print(f"Pulsar {version}, {tracker}; its log: {work_dir}/pulsar.log", flush=True)
            with (work_dir / "errors.log").open("wb") as errors:
                return min(subprocess.run(command, stderr=errors, check=False).returncode & 0xFF, 1)
        finally:
            daemon.kill()


def lock_of(version: str) -> Path:
    """The list of the jars with that version's tests."""
    return HERE / "jars" / f"pulsar-{version}.lock"


def versions() -> list[str]:
    """The versions of Pulsar with tests here."""
    return sorted(path.stem.removeprefix("pulsar-") for path in (HERE / "jars").glob("*.lock"))


def default_tests(version: str) -> list[str]:
    """Those in TESTS that ``version`` can run."""
    return [test for test in TESTS if test not in _NOT_WITH.get(version, frozenset())]


def suite_jars(version: str, directory: Path, java: Path, environment: dict[str, str]) -> Path:
    """The folder of the tests' jars, first fetched if it is missing. Raises ``SetupError``."""
    folder = directory / f"suite-{version}"
    with locked(directory / ".lock"):
        if not folder.is_dir():
            jars = assembled.read_lock(lock_of(version).read_text("utf-8"))
            remove_leftovers(directory)
            temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=directory))
            assembled.copy_jars(jars, f"suite {version}", temporary, directory, environment)
            migrate(temporary, java)
            temporary.rename(folder)
    return folder


def migrate(folder: Path, java: Path) -> None:
    """Move Pulsar's jars in ``folder`` to Jakarta EE's packages, if the migration lies among them.

    Removes the migration: its copies of libraries would be among the classes. Raises ``SetupError``.
    """
    for migration in folder.glob(f"{_MIGRATION}*.jar"):
        for jar in sorted(folder.glob("org.apache.pulsar-*.jar")):
            migrated = jar.with_suffix(".migrated")
            command = [str(java), "-jar", str(migration), "-profile=EE", str(jar), str(migrated)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SetupError(f"{jar.name} was not migrated: {done.stderr.strip()[-2000:]}")
            migrated.replace(jar)
        migration.unlink()


def compile_java(java: Path, class_path: str, to: Path) -> None:
    """Compile the Java sources beside this. Raises ``SetupError`` with the compiler's words."""
    sources = sorted(map(str, (HERE / "java").rglob("*.java")))
    javac = str(java.resolve().with_name("javac"))
    command = [javac, "-proc:none", "-nowarn", "-cp", class_path, "-d", str(to), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"the tests' runner was not compiled: {done.stderr.strip()[-2000:]}")


def jvm_options(home: Path, work_dir: Path) -> list[str]:
    """The options of the JVM of Pulsar's tests: its log goes to a file."""
    return [
        "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dpulsar.allocator.exit_on_oom=false",
        *(part for opened in _OPENED for part in ("--add-opens", f"{opened}=ALL-UNNAMED")),
        f"-Dlog4j2.configurationFile={home / 'conf' / 'log4j2.yaml'}",
        "-Dpulsar.log.appender=RollingFile", f"-Dpulsar.log.dir={work_dir}", "-Dpulsar.log.file=pulsar.log",
    ]  # fmt: skip


def full_name(test: str) -> str:
    """With its package. Raises ``SetupError`` for a class that is not known here."""
    name = test.partition("#")[0]
    if name not in _PACKAGES:
        raise SetupError(f"{name[:60]} is none of {', '.join(_PACKAGES)}")
    return f"org.apache.pulsar.{_PACKAGES[name]}.{test}"


if __name__ == "__main__":
    sys.exit(main())
