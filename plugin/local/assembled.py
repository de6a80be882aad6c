"""A Pulsar without a distribution on Maven Central, assembled from its jars.

``homes/pulsar-VERSION.lock`` names each jar with its SHA-256; scripts and conf files come from the
distribution that is fetched anyway. A stand-in for trying a version, not Apache's release: see
``docs/decisions/assembled-homes.md``. Invariants:

- no jar enters a home unless its SHA-256 is the locked one;
- the home appears under its name only when complete;
- Maven resolves nothing: each jar is requested by its coordinates, and has a pom without parent or
  dependencies in this set-up's local repository, so that version conflicts, and poms missing from Central, do
  not matter. A jar's own pom would: `dependency:copy` reads it, and fails if Central lacks its parent.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from tidegate.plugin.errors import SetupError
from tidegate.plugin.local import toolchain
from tidegate.plugin.local.distribution import (
    DEPENDENCY_PLUGIN,
    PULSAR,
    TEMPORARY,
    Report,
    after_failed_fetch,
    default_cache_dir,
    fetch,
    first_error,
    home_of,
    locked,
    remove_leftovers,
    require_disk,
    run_watched,
    sha256_of,
)

VARIABLE = "TIDEGATE_PULSAR"
JAVA_MIN = {"5": 21}
"""The Java needed by the class files, by major version of Pulsar."""
_LOCKS = Path(__file__).parent / "homes"
_FIELDS = 3
# Keys of 4.0's conf files with other defaults in 5.0, or unknown there.
_GONE_IN_5 = frozenset(
    (
        "acknowledgmentAtBatchIndexLevelEnabled",
        "dispatcherDispatchMessagesInSubscriptionThread",
        "dispatcherMaxReadBatchSize",
        "managedLedgerMaxBatchDeletedIndexToPersist",
        "managedLedgerMaxUnackedRangesToPersist",
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
        "managedLedgerMaxUnackedRangesToPersistInZooKeeper",
        "managedLedgerPersistIndividualAckAsLongArray",
        "managedLedgerUnackedRangesOpenCacheSetEnabled",
        "numIOThreads",
        "subscriptionKeySharedUseClassicPersistentImplementation",
        "subscriptionSharedUseClassicPersistentImplementation",
    )
)


@dataclass(frozen=True)
class LockedJar:
    """A jar in the lock."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """Its name in a Maven repository."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{suffix}.jar"

    @property
    def name_in_home(self) -> str:
        """Its name in ``lib``: with its group, as in Pulsar's distributions."""
        return f"{self.group}-{self.file_name}"


def versions() -> list[str]:
    """The available versions, the distribution's first."""
    found = (path.name.removeprefix("pulsar-").removesuffix(".lock") for path in _LOCKS.glob("pulsar-*.lock"))
    return [PULSAR.version, *sorted(found)]


def check_version(version: str) -> None:
    """Raise ``SetupError`` unless ``version`` is available."""
    if version not in versions():
        raise SetupError(f"Pulsar {version[:40]!r} cannot be set up: choose one of {', '.join(versions())}")


def pulsar_home(environment: Mapping[str, str], cache_dir: Path | None = None) -> Path:
    """The home, existing or not, of the Pulsar in ``TIDEGATE_PULSAR``, else of the distribution's.

    Raises ``SetupError`` if there is no such version.
    """
    version = environment.get(VARIABLE) or PULSAR.version
    check_version(version)
    return _home(version, default_cache_dir(environment) if cache_dir is None else cache_dir)


def find_jdk(environment: Mapping[str, str]) -> toolchain.Tool | toolchain.Problem:
    """A JDK for the Pulsar of ``TIDEGATE_PULSAR`` and its clients."""
    version = environment.get(VARIABLE) or PULSAR.version
    return toolchain.find_jdk_of(JAVA_MIN.get(version.partition(".")[0], toolchain.JDK_MIN), environment)


def newest_home(environment: Mapping[str, str]) -> Path | None:
    """The existing home of the newest Pulsar, if newer than that of ``pulsar_home``."""
    chosen = environment.get(VARIABLE) or PULSAR.version
    newer = [version for version in versions() if _ordered(version) > _ordered(chosen)]
    homes = [_home(version, default_cache_dir(environment)) for version in sorted(newer, key=_ordered)]
    return next((home for home in reversed(homes) if home.is_dir()), None)


def fetch_home(
    cache_dir: Path, environment: Mapping[str, str], report: Report = lambda _what, _done, _total: None
) -> Path:
    """The home of ``TIDEGATE_PULSAR``, fetched or assembled if missing.

    Raises ``SetupError`` if Maven, a JDK, the network, the disk or a jar fails.
    """
    home = pulsar_home(environment, cache_dir)
    base = fetch(cache_dir, environment, report)
    if home == base or home.is_dir():
        return home
    jdk = find_jdk(environment)
    if isinstance(jdk, toolchain.Problem):
        raise SetupError(jdk.text)
    try:
        with locked(home.parent / ".lock"):
            if not home.is_dir():
                remove_leftovers(home.parent)
                _assemble(home, base, jdk.path, environment, report)
    except OSError as error:
        raise SetupError(
            f"cannot write to {home.parent}: {error.strerror or error}; free or correct it"
        ) from error
    return home


def read_lock(text: str) -> list[LockedJar]:
    """The jars of a lock. Raises ``ValueError`` for any other line."""
    jars = []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split(" ")
        parts = fields[0].split(":")
        if len(fields) != _FIELDS or len(parts) not in (_FIELDS, _FIELDS + 1):
            raise ValueError(f"no jar in a line: {line[:120]}")
        classifier = parts[_FIELDS] if len(parts) > _FIELDS else ""
        jars.append(LockedJar(parts[0], parts[1], parts[2], classifier, fields[1], int(fields[2])))
    return jars


def pom_of(jars: list[LockedJar], to: Path) -> str:
    """A pom whose ``dependency:copy`` copies exactly ``jars`` to ``to``."""
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version>"
        + (f"<classifier>{jar.classifier}</classifier>" if jar.classifier else "")
        + "</artifactItem>\n"
        for jar in jars
    )
    group, artifact, version = DEPENDENCY_PLUGIN.split(":")
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tidegate</groupId><artifactId>home</artifactId><version>1</version><packaging>pom</packaging>"
        f"<build><plugins><plugin><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><configuration><outputDirectory>{escape(str(to))}</outputDirectory>"
        f"<prependGroupId>true</prependGroupId><artifactItems>\n{items}</artifactItems>"
        "</configuration></plugin></plugins></build></project>\n"
    )


def write_poms(jars: list[LockedJar], repository: Path) -> None:
    """Give each jar a pom without a parent in ``repository``, a local repository of Maven's."""
    for jar in jars:
        directory = repository / Path(*jar.group.split("."), jar.artifact, jar.version)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{jar.artifact}-{jar.version}.pom").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            f"<groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
            f"<version>{jar.version}</version></project>\n",
            "utf-8",
        )


def conf_of(text: str) -> str:
    """A conf file of 4.0 without the keys that have other defaults in 5.0, or are unknown there.

    A 4.2 uses its own defaults for them.
    """
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("=")[0].strip() not in _GONE_IN_5)


def log_conf_of(text: str) -> str:
    """A ``log4j2.yaml`` of 4.0 with lines that also have 5.0's fields beside the message: topic, ids, error.

    A 4.2 has nothing there, and writes ``{}``.
    """
    return text.replace("%msg%n", "%msg %X%n")


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _home(version: str, directory: Path) -> Path:
    if version == PULSAR.version:
        return home_of(directory)
    return directory / "pulsar" / f"assembled-pulsar-{version}"


def copy_jars(
    jars: list[LockedJar],
    name: str,
    to: Path,
    directory: Path,
    environment: Mapping[str, str],
    *,
    report: Report = lambda _what, _done, _total: None,
) -> None:
    """Have Maven copy the jars of ``name`` ("Pulsar 5.0.1") to ``to``, each checked, and named as in a home.

    Downloads lie below ``directory``, survive an interruption, and go at the end. Raises ``SetupError`` if
    Maven, the network, the disk or a jar fails.
    """
    total = sum(jar.size_bytes for jar in jars)
    require_disk(directory, 3 * total)
    maven = toolchain.find_maven(environment)
    if isinstance(maven, toolchain.Problem):
        raise SetupError(maven.text)
    # No other build may read these poms.
    repository = directory / "download" / f"maven-{name.lower().replace(' ', '-')}"
    write_poms(jars, repository)
    pom = repository / "pom.xml"
    pom.write_text(pom_of(jars, to), "utf-8")
    what, log_path = f"fetching the {len(jars)} jars of {name}", directory / "maven.log"
    command = [
        str(maven.path), "-B", "-ntp", f"-Dmaven.repo.local={repository}",
        "-f", str(pom), f"{DEPENDENCY_PLUGIN}:copy",
    ]  # fmt: skip
    exit_code = run_watched(
        command,
        environment,
        log_path,
        lambda: report(what, sum(one.stat().st_size for one in to.glob("*.jar")), total),
    )
    if exit_code != 0:
        raise SetupError(
            f"Maven could not fetch the jars of {name}: {first_error(log_path)}; "
            f"{after_failed_fetch(environment)}, then run the same command again (Maven's log: {log_path})"
        )
    report(what, total, total)
    _check(jars, to, repository)
    shutil.rmtree(repository.parent, ignore_errors=True)


def _assemble(home: Path, base: Path, java: Path, environment: Mapping[str, str], report: Report) -> None:
    version = environment[VARIABLE]
    jars = read_lock((_LOCKS / f"pulsar-{version}.lock").read_text("utf-8"))
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=home.parent))
    try:
        lib = temporary / "home" / "lib"
        lib.mkdir(parents=True)
        copy_jars(jars, f"Pulsar {version}", lib, home.parent, environment, report=report)
        _furnish(temporary / "home", base, java)
        (temporary / "home").rename(home)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _check(jars: list[LockedJar], lib: Path, repository: Path) -> None:
    """Check that each jar is the locked one, under the name that the start script and ``attach`` expect."""
    for jar in jars:
        path = lib / jar.name_in_home
        prefixed = lib / f"{jar.group}.{jar.file_name}"  # the plugin's name for it
        if prefixed.is_file():
            prefixed.rename(path)
        if not path.is_file() or sha256_of(path) != jar.sha256:
            raise SetupError(
                f"{jar.file_name} is not the one that was locked (its SHA-256 differs): delete "
                f"{repository} and run the same command again"
            )


def _furnish(home: Path, base: Path, java: Path) -> None:
    for name in ("bin", "conf", "instances"):
        shutil.copytree(base / name, home / name)
    for name in ("broker.conf", "standalone.conf"):
        path = home / "conf" / name
        path.write_text(conf_of(path.read_text("utf-8")), "utf-8")
    path = home / "conf" / "log4j2.yaml"
    path.write_text(log_conf_of(path.read_text("utf-8")), "utf-8")
    for name in ("bkenv.sh", "pulsar_env.sh"):
        path = home / "conf" / name
        # First: the script then asks this Java for its version.
        text = f"JAVA_HOME={shlex.quote(str(java.resolve().parents[1]))}\nexport JAVA_HOME\n"
        path.write_text(text + path.read_text("utf-8"), "utf-8")
