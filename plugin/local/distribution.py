"""Apache Pulsar's server distribution in a local cache: fetched by Maven, checked, unpacked, once.

Invariants:

- the unpacked directory gets its name only when complete (a temporary directory, then a rename), so its
  existence proves the work done;
- an archive is unpacked only if its SHA-256 is the pinned one;
- of two processes one works and the other waits, by a lock file;
- an interrupted fetch continues: Maven keeps its part and asks for the rest (a repository without ranges
  sends all of it again), and a checked archive is unpacked without the network.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tidegate.plugin.errors import SetupError
from tidegate.plugin.local import toolchain

DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_WATCH_INTERVAL_S = 0.2
TEMPORARY = ".unpacking-"
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")

Report = Callable[[str, int, int], None]
"""Called with the present work, its bytes done, and all its bytes."""


@dataclass(frozen=True)
class Distribution:
    """A ``tar.gz`` in a Maven repository with one top directory, ``directory_name``."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size_bytes: int
    unpacked_bytes: int
    directory_name: str

    @property
    def file_name(self) -> str:
        """The archive's name in a Maven repository."""
        return f"{self.artifact}-{self.version}-{self.classifier}.tar.gz"

    @property
    def coordinates(self) -> str:
        """As on Maven's command line."""
        return f"{self.group}:{self.artifact}:{self.version}:tar.gz:{self.classifier}"

    @property
    def repository_directory(self) -> Path:
        """Its path below a Maven repository's root."""
        return Path(*self.group.split("."), self.artifact, self.version)


PULSAR = Distribution(
    group="org.apache.pulsar",
    artifact="pulsar-server-distribution",
    version="4.0.8",
    classifier="bin",
    sha256="35c7d064c9e0928edbf2e708989faba0379662f98aa84ce0d4190c59efb6765e",
    size_bytes=245_494_718,
    unpacked_bytes=266_000_000,
    directory_name="apache-pulsar-4.0.8",
)


def checkout() -> Path | None:
    """This file's checkout; None in an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() and (root / "plugin").is_dir() else None


def default_cache_dir(environment: Mapping[str, str]) -> Path:
    """``TIDEGATE_CACHE_DIR``, else ``.cache`` of this file's checkout, else the user's own cache."""
    if chosen := environment.get("TIDEGATE_CACHE_DIR"):
        return Path(chosen).absolute()
    if (root := checkout()) is not None:
        return root / ".cache"
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tidegate"


def home_of(cache_dir: Path, distribution: Distribution = PULSAR) -> Path:
    """The unpacked distribution's directory, fetched or not."""
    return cache_dir / "pulsar" / distribution.directory_name


def fetch(
    cache_dir: Path,
    environment: Mapping[str, str],
    report: Report = lambda _what, _done, _total: None,
    distribution: Distribution = PULSAR,
) -> Path:
    """The home of the unpacked distribution, fetched if missing.

    Raises ``SetupError`` if Maven, the network, the disk or the archive fails.
    """
    home = home_of(cache_dir, distribution)
    if problem := toolchain.check_path(home, "set TIDEGATE_CACHE_DIR to another directory"):
        raise SetupError(problem.text)
    if home.is_dir():
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with locked(home.parent / ".lock"):
            if not home.is_dir():
                remove_leftovers(home.parent)
                archive = _archive(home.parent, environment, report, distribution)
                _unpack(archive, home, report)
                shutil.rmtree(home.parent / "download", ignore_errors=True)
    except OSError as error:
        raise SetupError(
            f"cannot write to {home.parent}: {error.strerror or error}; "
            "free or correct it, or set TIDEGATE_CACHE_DIR to another directory"
        ) from error
    return home


def maven_repository(environment: Mapping[str, str]) -> Path:
    """Maven's local repository, by the environment and the user's settings.

    It serves to find an existing archive and to watch one grow: a wrong answer is otherwise harmless.
    """
    for name in ("MAVEN_ARGS", "MAVEN_OPTS"):
        if match := re.search(r"-Dmaven\.repo\.local=(\S+)", environment.get(name, "")):
            return Path(match[1])
    user = _maven_folder(environment)
    for element in _maven_settings(environment):
        if element.tag.rpartition("}")[2] == "localRepository" and element.text:
            return Path(element.text.strip().replace("${user.home}", str(user.parent)))
    return user / "repository"


def after_failed_fetch(environment: Mapping[str, str]) -> str:
    """The first thing to check, without the proxy's URL, which may contain a password."""
    proxies = [name for name in _PROXY_VARIABLES if environment.get(name)]
    if proxies and not any(one.tag.rpartition("}")[2] == "proxies" for one in _maven_settings(environment)):
        return f"Maven does not read {proxies[0]}: name the proxy in ~/.m2/settings.xml"
    return "check the network and Maven's mirrors"


def _maven_folder(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home()) / ".m2"


def _maven_settings(environment: Mapping[str, str]) -> list[ElementTree.Element]:
    """The elements of the user's own file, which Maven reads too; none if unreadable."""
    with contextlib.suppress(OSError, ElementTree.ParseError):
        return list(ElementTree.parse(_maven_folder(environment) / "settings.xml").getroot())  # noqa: S314
    return []


def _archive(
    directory: Path, environment: Mapping[str, str], report: Report, distribution: Distribution
) -> Path:
    stored = maven_repository(environment) / distribution.repository_directory / distribution.file_name
    fetched = directory / "download" / distribution.file_name
    for archive in (fetched, stored):
        if archive.is_file() and sha256_of(archive) == distribution.sha256:
            require_disk(directory, distribution.unpacked_bytes)
            return archive
    jdk, maven = toolchain.find_jdk(environment), toolchain.find_maven(environment)
    if isinstance(jdk, toolchain.Problem):
        raise SetupError(jdk.text)
    if isinstance(maven, toolchain.Problem):
        raise SetupError(maven.text)
    require_disk(directory, 2 * distribution.size_bytes + distribution.unpacked_bytes)
    what = f"fetching {distribution.file_name}"
    command = [
        str(maven.path), "-B", "-ntp", f"{DEPENDENCY_PLUGIN}:copy",
        f"-Dartifact={distribution.coordinates}",
        f"-DoutputDirectory={fetched.parent}",
    ]  # fmt: skip
    log_path = directory / "maven.log"
    exit_code = run_watched(
        command,
        environment,
        log_path,
        lambda: report(what, min(_largest(stored), distribution.size_bytes), distribution.size_bytes),
    )
    if exit_code != 0 or not fetched.is_file():
        raise SetupError(
            f"Maven could not fetch Pulsar {distribution.version}: {first_error(log_path)}; "
            f"{after_failed_fetch(environment)}, then run the same command again (Maven's log: {log_path})"
        )
    report(what, distribution.size_bytes, distribution.size_bytes)
    if sha256_of(fetched) != distribution.sha256:
        fetched.unlink()
        raise SetupError(
            f"{distribution.file_name} is not the one that was pinned (its SHA-256 differs): "
            f"delete {stored.parent} and run the same command again"
        )
    return fetched


def run_watched(
    command: Sequence[str], environment: Mapping[str, str], log_path: Path, watch: Callable[[], None]
) -> int:
    """Run Maven to its end, calling ``watch`` regularly; returns its exit code. Maven ends with this
    process.
    """
    with log_path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command,
            env=dict(environment),
            # Away from any pom: the goal needs none, and a project's pom could change it.
            cwd=log_path.parent,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            while True:
                try:
                    return process.wait(_WATCH_INTERVAL_S)
                except subprocess.TimeoutExpired:
                    watch()
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _unpack(archive: Path, home: Path, report: Report) -> None:
    what, size_bytes = f"unpacking {archive.name}", archive.stat().st_size
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=home.parent))
    try:
        with archive.open("rb") as raw, tarfile.open(fileobj=raw, mode="r:gz") as tar:
            # The archive's checksum is pinned; the filter, missing from early 3.11s, is a second lock.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            for member in tar:
                tar.extract(member, temporary)
                report(what, raw.tell(), size_bytes)
        (temporary / home.name).rename(home)
        report(what, size_bytes, size_bytes)
    except (tarfile.TarError, EOFError, zlib.error, FileNotFoundError) as error:
        raise SetupError(f"{archive} cannot be unpacked ({error}): delete it and run again") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def require_disk(directory: Path, needed_bytes: int) -> None:
    """Raise ``SetupError`` unless ``needed_bytes`` are free."""
    elsewhere = "set TIDEGATE_CACHE_DIR to a directory on another disk"
    if problem := toolchain.check_disk(directory, needed_bytes, elsewhere):
        raise SetupError(problem.text)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process in at a time; the others wait."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_leftovers(directory: Path) -> None:
    """Remove the remains of an interrupted set-up."""
    for leftover in directory.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def sha256_of(path: Path) -> str:
    """In hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _largest(stored: Path) -> int:
    # Depending on its version, Maven writes to NAME.part or NAME.<random>.tmp, and renames at the end.
    sizes = [0]
    for path in stored.parent.glob(f"{stored.name}*"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return max(sizes)


def first_error(log_path: Path) -> str:
    """Maven's first error, in one line."""
    for line in log_path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if text.startswith("[ERROR] "):
            return text.removeprefix("[ERROR] ").strip().removesuffix(".")
    return "it gave no reason"
