"""One line names a missing part of a machine and the remedy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tidegate.plugin.local import toolchain
from tidegate.plugin.local.process import free_ports
from tidegate.plugin.local.toolchain import Problem, Tool

SCRIPT = Path(toolchain.__file__).resolve()


def program(directory: Path, name: str, output: str, exit_code: int = 0) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit {exit_code}\n")
    path.chmod(0o755)


def bin_with(
    directory: Path, java: str | None, maven: str | None = None, javac: bool = True
) -> dict[str, str]:
    """An environment whose PATH has just these programs, and what a shell script needs."""
    directory.mkdir(exist_ok=True)
    for needed in ("sh", "cat"):
        found = shutil.which(needed)
        assert found is not None
        (directory / needed).symlink_to(found)
    if java is not None:
        program(directory, "java", f'openjdk version "{java}" 2025-04-15')
        if javac:
            program(directory, "javac", "")
    if maven is not None:
        program(directory, "mvn", f"\x1b[1mApache Maven {maven}\x1b[m")
    return {"PATH": str(directory)}


def text(answer: Tool | Problem | None) -> str:
    assert isinstance(answer, Problem)
    assert "\n" not in answer.text
    return answer.text


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)])
def test_a_jdk_is_found_by_path(tmp_path: Path, version: str, major: int) -> None:
    assert toolchain.find_jdk(bin_with(tmp_path, version)) == Tool(tmp_path / "java", (major,))


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    environment = bin_with(tmp_path / "bin", "11.0.1") | {"JAVA_HOME": str(tmp_path / "jdk")}
    program(tmp_path / "jdk" / "bin", "java", 'openjdk version "21.0.1"')
    program(tmp_path / "jdk" / "bin", "javac", "")
    assert toolchain.find_jdk(environment) == Tool(tmp_path / "jdk" / "bin" / "java", (21,))


@pytest.mark.parametrize(("version", "said"), [("11.0.2", "Java 11"), ("1.8.0_412", "Java 8")])
def test_an_old_java(tmp_path: Path, version: str, said: str) -> None:
    assert f"{said} is too old" in text(toolchain.find_jdk(bin_with(tmp_path, version)))


def test_no_java_a_jre_only_and_a_wrong_java_home(tmp_path: Path) -> None:
    assert text(toolchain.find_jdk(bin_with(tmp_path / "none", None))).startswith(
        "no java found: install a JDK 17"
    )
    assert "has no compiler" in text(toolchain.find_jdk(bin_with(tmp_path / "jre", "17.0.1", javac=False)))
    assert "JAVA_HOME is /nowhere" in text(toolchain.find_jdk({"PATH": "", "JAVA_HOME": "/nowhere"}))


def test_a_java_that_does_not_run(tmp_path: Path) -> None:
    environment = bin_with(tmp_path, "17")
    program(tmp_path, "java", "no Java runtime present", exit_code=1)
    assert "does not say its version" in text(toolchain.find_jdk(environment))


def test_maven(tmp_path: Path) -> None:
    assert toolchain.find_maven(bin_with(tmp_path / "new", None, "3.8.7")) == Tool(
        tmp_path / "new" / "mvn", (3, 8)
    )
    assert "Maven 3.6 is too old" in text(toolchain.find_maven(bin_with(tmp_path / "old", None, "3.6.3")))
    assert text(toolchain.find_maven(bin_with(tmp_path / "none", None))).startswith(
        "no mvn found: install Maven"
    )


def test_an_old_python() -> None:
    assert toolchain.check_python((3, 11, 0)) is None
    assert text(toolchain.check_python((3, 9, 2))).startswith(
        "Python 3.9 is too old: install Python 3.11 or newer"
    )


def test_disk_space_is_asked_where_the_directory_will_be(tmp_path: Path) -> None:
    missing = tmp_path / "not" / "yet"
    assert toolchain.check_disk(missing, 1, "look elsewhere") is None
    said = text(toolchain.check_disk(missing, 2**62, "look elsewhere"))
    assert said.startswith(f"{missing} has ")
    assert said.endswith(f" MiB of disk left and {2**42} MiB are needed: free some, or look elsewhere")
    assert not missing.exists()


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, (free_port,) = server.getsockname()[1], free_ports(1)
        problems = toolchain.check_ports({"broker": port, "web": free_port})
    assert [text(problem) for problem in problems] == [
        f"port {port} (broker) is in use: stop what listens there, "
        "or run the same command again, which takes other ports"
    ]


def test_the_script_runs_without_the_package_and_prints_a_line_for_each_problem(tmp_path: Path) -> None:
    environment = bin_with(tmp_path, None)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), "--need", "python", "jdk", "maven"],
        env=environment, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert [line[:14] for line in done.stderr.splitlines()] == ["tidegate: no j", "tidegate: no m"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/opt/tide gate", "'/opt/tide gate' has a space in it"),
        ("/opt/a:b\tc", "'/opt/a:b\\tc' has '\\t' ':' in it"),
    ],
)
def test_a_path_that_pulsar_cannot_take(path: str, said: str) -> None:
    advice = "which Pulsar's start script cannot take: move it"
    assert text(toolchain.check_path(Path(path), "move it")) == f"{said}, {advice}"


def test_a_path_that_pulsar_can_take() -> None:
    assert toolchain.check_path(Path("/opt/größe/a(b)'c=d,e#f"), "move it") is None


def checkout_of(directory: Path) -> Path:
    """The needs of `make` to begin."""
    (directory / "plugin" / "local").mkdir(parents=True)
    root = SCRIPT.parents[2]
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt", "plugin/local/toolchain.py"):
        shutil.copy(root / name, directory / name)
    return directory


def test_make_says_first_that_pulsar_cannot_run_here(tmp_path: Path) -> None:
    checkout = checkout_of(tmp_path / "tide gate")
    done = subprocess.run(["make", "demo"], cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("tidegate: "))
    assert "has a space in it, which Pulsar's start script cannot take: move the checkout" in said
    assert not (checkout / "build").exists()
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("target", ["demo", "lint", "test"])
def test_make_says_in_its_own_line_that_it_may_not_write_here(target: str) -> None:
    with tempfile.TemporaryDirectory() as directory:  # not below pytest's, which others may not look into
        checkout = checkout_of(Path(directory) / "checkout")
        Path(directory).chmod(0o755)
        checkout.chmod(0o555)
        done = subprocess.run(
            ["make", target, f"PYTHON={sys.executable}"],
            cwd=checkout,
            user=65_534 if os.geteuid() == 0 else None,  # root may write everywhere
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            check=False,
        )
        checkout.chmod(0o755)
        assert done.returncode != 0
        first, second = done.stderr.splitlines()
        assert first == "tidegate: cannot write to this checkout: work in a copy that is yours"
        assert second.startswith("make: *** ")


def test_make_says_what_is_missing_before_anything_is_downloaded(tmp_path: Path) -> None:
    checkout = checkout_of(tmp_path / "checkout")
    environment = bin_with(tmp_path / "bin", None)
    for name in ("find", "test", "mkdir", "touch", "ln", "dirname", "basename"):
        if found := shutil.which(name):
            (tmp_path / "bin" / name).symlink_to(found)
    make = shutil.which("make")
    assert make is not None

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(
            [make, *arguments], env=environment, cwd=checkout, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert done.stdout == ""
        return [line for line in done.stderr.splitlines() if line.startswith("tidegate: ")]

    assert run("demo") == [
        "tidegate: no Python 3.11 or newer found: install one, or run: make PYTHON=/path/to/python3"
    ]
    said = run("test", f"PYTHON={sys.executable}")
    assert [line.split(":")[1] for line in said] == [" no java found", " no mvn found"]
    assert not (checkout / ".venv").exists()


def test_the_checks_know_this_machine() -> None:
    assert toolchain.check(["python", "jdk", "maven"], os.environ) == []
