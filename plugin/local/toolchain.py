"""The requirements for building and running Tidegate: Python, a JDK, Maven, disk space, free ports.

``python plugin/local/toolchain.py --need jdk maven`` is the Makefile's first step, before there is a virtual
environment.

Invariants:

- only the standard library is imported, and nothing of this package: the file must run as a script;
- a check never raises and changes nothing: it returns the tool or a ``Problem``, a text of one line that ends
  in the remedy;
- the places to search (``PATH``, ``JAVA_HOME``) are parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PYTHON_MIN = (3, 11)
JDK_MIN = 17
MAVEN_MIN = (3, 8)
LOOPBACK = "127.0.0.1"
_TOOL_TIMEOUT_S = 60.0
_PLATFORMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}
_BAD_IN_PATHS = '":\\%'  # each tried alone: with these, as with white space, no broker started


@dataclass(frozen=True)
class Tool:
    """A found program, and its version."""

    path: Path
    version: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A missing requirement; ``text`` is one line with the remedy."""

    text: str


def check_python(version: tuple[int, ...]) -> Problem | None:
    """Check that ``version`` (as ``sys.version_info``) is new enough."""
    if tuple(version[:2]) >= PYTHON_MIN:
        return None
    found, wanted = _dotted(version[:2]), _dotted(PYTHON_MIN)
    return Problem(
        f"Python {found} is too old: install Python {wanted} or newer and run: make PYTHON=python{wanted}"
    )


def check_platform(platform: str) -> Problem | None:
    """Check that Tidegate runs on ``platform`` (as ``sys.platform``)."""
    if platform == "linux":
        return None
    return Problem(
        f"Tidegate runs on Linux only, and this is {_PLATFORMS.get(platform, platform)}: "
        "use a Linux machine, a virtual one or a container"
    )


def find_jdk(environment: Mapping[str, str]) -> Tool | Problem:
    """The ``java`` of a JDK, from ``JAVA_HOME`` if set (as Maven and Pulsar do), else from ``PATH``."""
    advice = f"install a JDK {JDK_MIN} or newer (Debian: apt-get install openjdk-17-jdk-headless)"
    java_home = environment.get("JAVA_HOME")
    where = str(Path(java_home) / "bin") if java_home else environment.get("PATH", "")
    java = shutil.which("java", path=where)
    if java is None:
        if java_home:
            return Problem(f"JAVA_HOME is {java_home}, where there is no bin/java: correct it, or {advice}")
        return Problem(f"no java found: {advice}, or set JAVA_HOME")
    match = re.search(r'version "(\d+)(?:\.(\d+))?', _output_of([java, "-version"], environment))
    if match is None:
        return Problem(f"{java} does not say its version: {advice}")
    # Up to Java 8, versions were written as 1.8.
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if major < JDK_MIN:
        return Problem(f"Java {major} is too old ({java}): {advice}, and set JAVA_HOME to it")
    if shutil.which("javac", path=where) is None:
        return Problem(f"Java {major} has no compiler ({java} is of a JRE): {advice}")
    return Tool(Path(java), (major,))


def find_jdk_of(
    major_min: int, environment: Mapping[str, str], roots: Sequence[Path] = (Path("/usr/lib/jvm"),)
) -> Tool | Problem:
    """The ``java`` of a JDK ``major_min`` or newer: as ``find_jdk``, else the oldest such in ``roots``.

    For programs that need a newer JDK than the rest, without a change of the machine's default.
    """
    usual = find_jdk(environment)
    if isinstance(usual, Tool) and usual.version >= (major_min,):
        return usual
    homes = sorted(home for root in roots if root.is_dir() for home in root.iterdir())
    found = [
        find_jdk({**environment, "JAVA_HOME": str(home)})
        for home in homes
        if (home / "bin" / "java").is_file()
    ]
    fitting = [jdk for jdk in found if isinstance(jdk, Tool) and jdk.version >= (major_min,)]
    if not fitting:
        return Problem(f"no JDK {major_min} or newer found: install one, or set JAVA_HOME to it")
    return min(fitting, key=lambda jdk: jdk.version)


def find_maven(environment: Mapping[str, str]) -> Tool | Problem:
    """Maven from ``PATH``."""
    advice = f"install Maven {_dotted(MAVEN_MIN)} or newer (Debian: apt-get install maven)"
    maven = shutil.which("mvn", path=environment.get("PATH", ""))
    if maven is None:
        return Problem(f"no mvn found: {advice}")
    match = re.search(r"Apache Maven (\d+)\.(\d+)", _output_of([maven, "-version"], environment))
    if match is None:
        return Problem(f"{maven} does not say its version: {advice}")
    version = (int(match[1]), int(match[2]))
    if version < MAVEN_MIN:
        return Problem(f"Maven {_dotted(version)} is too old ({maven}): {advice}")
    return Tool(Path(maven), version)


def check_disk(directory: Path, needed_bytes: int, elsewhere: str) -> Problem | None:
    """Check that the file system of ``directory`` (existing or not) has ``needed_bytes`` left.

    ``elsewhere`` says how to choose another directory.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes >= needed_bytes:
        return None
    return Problem(
        f"{directory} has {free_bytes // 2**20} MiB of disk left and {needed_bytes // 2**20} MiB are needed: "
        f"free some, or {elsewhere}"
    )


def check_path(path: Path, advice: str) -> Problem | None:
    """Check that Pulsar's start script, which is careless with names, can handle ``path``; else
    ``advice``.
    """
    bad = sorted({character for character in str(path) if character.isspace() or character in _BAD_IN_PATHS})
    if not bad:
        return None
    what = "a space" if bad == [" "] else f"{' '.join(map(repr, bad))}"
    return Problem(f"{str(path)!r} has {what} in it, which Pulsar's start script cannot take: {advice}")


def check_ports(ports: Mapping[str, int], host: str = LOOPBACK) -> list[Problem]:
    """A problem for each port of ``ports`` (purpose -> number) already in use."""
    problems: list[Problem] = []
    for purpose, port in ports.items():
        with socket.socket() as probe:
            # As a server binds: a port that only lingers in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                problems.append(
                    Problem(
                        f"port {port} ({purpose}) is in use: stop what listens there, "
                        "or run the same command again, which takes other ports"
                    )
                )
    return problems


def check(needs: Iterable[str], environment: Mapping[str, str]) -> list[Problem]:
    """All problems with ``needs`` (of ``python``, ``jdk`` and ``maven``)."""
    checks: dict[str, Callable[[], Tool | Problem | None]] = {
        "python": lambda: check_python(sys.version_info[:3]),
        "jdk": lambda: find_jdk(environment),
        "maven": lambda: find_maven(environment),
    }
    answers = [checks[need]() for need in needs]
    return [answer for answer in answers if isinstance(answer, Problem)]


def _output_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TOOL_TIMEOUT_S,
            check=False,
        )
        # Maven colours its version even in a pipe.
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout) if done.returncode == 0 else ""
    return ""


def _dotted(version: Sequence[int]) -> str:
    return ".".join(str(part) for part in version)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each problem; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(description="check this machine's requirements")
    parser.add_argument("--need", nargs="+", choices=["python", "jdk", "maven"])
    parser.add_argument("--java-home", type=int, metavar="N", help="print the home of a JDK N or newer")
    parser.add_argument("--path", type=Path, help="where Pulsar will run")
    chosen = parser.parse_args(arguments)
    if chosen.java_home is not None:
        jdk = find_jdk_of(chosen.java_home, os.environ)
        if isinstance(jdk, Problem):
            print(f"tidegate: {jdk.text}", file=sys.stderr)
            return 1
        print(jdk.path.resolve().parents[1])
        return 0
    if not chosen.need:
        parser.error("say what to look for: --need or --java-home")
    elsewhere = check_platform(sys.platform)
    if elsewhere is None:
        problems = check(chosen.need, os.environ)
        advice = "move the checkout to another place"
        if chosen.path is not None and (problem := check_path(chosen.path.absolute(), advice)):
            problems.append(problem)
    else:
        problems = [elsewhere]
    for problem in problems:
        print(f"tidegate: {problem.text}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
