"""The wheel carries the shim: who installs it attaches a broker without Maven."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("index", "plugin", "pipeline")
WHERE = "import inspect, tidegate; print(inspect.getfile(tidegate.Client))"
DOOR = "door"  # `tidegate` itself
JAR = "tidegate/plugin/jars/tidegate-pulsar-shim.jar"
OTHERS = {
    "tidegate/__init__.py",
    "tidegate/plugin/drill/stands/clock.c",
    "tidegate/plugin/local/homes/pulsar-4.2.4.lock",
    "tidegate/plugin/local/homes/pulsar-5.0.1.lock",
    "tidegate/plugin/telemetry/page.html",
    "tidegate/py.typed",
    "tidegate/index/py.typed",
    "tidegate/plugin/py.typed",
    "tidegate/pipeline/py.typed",
    "tidegate/index/rocks/rocksdb/OPTIONS-000001",
}
MAN_PAGES = ("tidegate.1", "tidegate-serve.1")
SHARED = {f"share/man/man1/{name}" for name in MAN_PAGES} | {
    f"share/tidegate/{folder}/{path.name}"
    for folder in ("kubernetes", "systemd")
    for path in (ROOT / "deploy" / folder).iterdir()
}


def build(source: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(source / "dist")]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of a wheel, in a place of their own."""
    path = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, DOOR, "deploy"):
        shutil.copytree(
            ROOT / name, path / name, ignore=shutil.ignore_patterns("__pycache__", "target", "shim")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, path / name)
    # `make wheel` makes all of them.
    (path / "build/man").mkdir(parents=True)
    for name in MAN_PAGES:
        (path / "build/man" / name).write_text(".TH TIDEGATE 1\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    done = build(source)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    (path,) = (source / "dist").glob("*.whl")
    return path


@pytest.fixture
def scratch(wheel: Path, tmp_path: Path) -> Path:
    """A virtual environment that has the wheel, its dependencies, and nothing else of this checkout."""
    environment = tmp_path / "scratch"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q"]
    subprocess.run([*pip, str(wheel)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    # The directory of the dependencies alone: a .pth file in it, as of an editable install, is not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def test_attach_from_the_wheel_needs_no_maven(scratch: Path, home: Path) -> None:
    def tidegate(*arguments: str) -> str:
        command = [str(scratch / "bin" / "tidegate"), *arguments]
        done = subprocess.run(
            command, env={"PATH": "", "HOME": str(scratch)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = subprocess.run(
        [str(scratch / "bin" / "python"), "-c", WHERE],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(scratch)
    assert "PULSAR_HOME" in tidegate("attach", "--help")
    assert tidegate("attach", str(home), "--socket", "/run/t.sock").startswith("attached ")
    assert (home / "lib" / "tidegate-pulsar-shim.jar").read_bytes() == (
        ROOT / "plugin" / "jars" / Path(JAR).name
    ).read_bytes()
    assert tidegate("detach", str(home)).startswith("detached ")


@pytest.mark.parametrize("arguments", [["demo"], ["drill", "run", "broker-killed"], ["standalone"]], ids=str)
def test_without_a_checkout_nobody_is_told_to_run_make(
    scratch: Path, tmp_path: Path, arguments: list[str]
) -> None:
    done = subprocess.run(
        [str(scratch / "bin" / "tidegate"), *arguments],
        env={**os.environ, "TIDEGATE_CACHE_DIR": str(tmp_path / "none")},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"tidegate: there is no Pulsar in \S+: run: tidegate setup\n", done.stderr)


def test_the_wheel_holds_every_module_and_nothing_else(source: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {
        f"tidegate/{path.relative_to(source)}" for name in PACKAGES for path in (source / name).rglob("*.py")
    }
    held = {name for name in names if not re.search(r"\.(?:dist-info|data)/", name)}
    assert held == modules | {JAR} | OTHERS
    beside = {found[1] for name in names if (found := re.search(r"\.data/data/(.*)", name))}
    assert beside == SHARED


@pytest.mark.parametrize(
    ("left_out", "missing"), [("jars", "tidegate-pulsar-shim.jar"), ("man", "build/man/tidegate.1")]
)
def test_a_wheel_without_a_made_file_is_refused(
    source: Path, tmp_path: Path, left_out: str, missing: str
) -> None:
    copy = tmp_path / "source"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(left_out, "lib", "dist", "*.egg-info"))
    done = build(copy)
    assert done.returncode != 0
    assert f"{missing} is missing" in done.stdout + done.stderr
    assert not list(copy.glob("dist/*.whl"))
