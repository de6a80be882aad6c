"""The archive that workers on other machines unpack: Tidegate and its dependencies, as installed here.

    tidegate-spark.tar.gz     packages at its root, for --archives …#tidegate_env with PYTHONPATH=tidegate_env
    tidegate_submit.py        started by spark-submit

Invariants: nothing is downloaded; Spark, which the cluster has, is not in it; the same installation gives the
same bytes; an archive is complete or absent.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from tidegate.pipeline.errors import PipelineError
from tidegate.pipeline.job.parts import EXTRA
from tidegate.plugin.shared.extras import how_to_get

UNPACKED_AS = "tidegate_env"
SUBMIT_NAME = "tidegate_submit.py"
_OURS = ("index", "plugin", "pipeline")
_LEFT_OUT = {"pyspark", "py4j"}
_LEVEL = 3
# Folders that no program needs at run time.
_NOT_FOLDERS = {"__pycache__", "tests", "include", "src"}
_NOT_SUFFIXES = {".pth", ".pyi", ".h", ".hpp", ".pxd", ".pyx", ".java", ".a"}


class Shipped(NamedTuple):
    """The files made."""

    archive: Path
    script: Path
    size_bytes: int
    distributions: list[str]


def make_package(directory: Path) -> Shipped:
    """Write both files into ``directory``. Raises ``PipelineError``."""
    names = sorted(_closure("tidegate", frozenset({"spark"})))
    files = dict(_our_files())
    for name in names:
        files.update(_files_of(name))
    archive, script = directory / "tidegate-spark.tar.gz", directory / SUBMIT_NAME
    temporary = directory / f".{archive.name}.{os.getpid()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed:
            _write(packed, files)
        temporary.replace(archive)
        script.write_text(submit_script(), encoding="utf-8")
        size_bytes = archive.stat().st_size
    except OSError as error:
        raise PipelineError(f"cannot write {archive}: {error.strerror or error}") from error
    finally:
        # Without a temporary file there is nothing to remove.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return Shipped(archive, script, size_bytes, _versions(names))


def closure_versions() -> list[str]:
    """The contents of an archive: distributions with their versions."""
    return _versions(sorted(_closure("tidegate", frozenset({"spark"}))))


def _versions(names: Iterable[str]) -> list[str]:
    return [f"{name} {importlib.metadata.version(name)}" for name in names]


def submit_script() -> str:
    """The program for spark-submit; it finds Tidegate beside it, or where Spark has unpacked it."""
    return f'''"""A tidegate command as a Spark application: spark-submit … {SUBMIT_NAME} audit --sent … …"""

import os
import sys

WANTED = {tuple(sys.version_info[:2])!r}

if sys.version_info[:2] != WANTED:
    sys.exit("tidegate: the package was made for Python %d.%d: set PYSPARK_PYTHON to one" % WANTED)
unpacked = os.path.join(os.getcwd(), "{UNPACKED_AS}")
if os.path.isdir(unpacked):
    sys.path.insert(0, unpacked)

from tidegate.pipeline.commands.submit import main

sys.exit(main())
'''


def platform_words() -> str:
    """The platform of the archive's compiled packages."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.system()} {platform.machine()}"


def _write(packed: gzip.GzipFile, files: dict[str, Path]) -> None:
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size = files[name].stat().st_size
            info.mode = 0o644
            with files[name].open("rb") as source:
                tar.addfile(info, source)


def _our_files() -> Iterator[tuple[str, Path]]:
    for package in _OURS:
        spec = importlib.util.find_spec(f"tidegate.{package}")
        if spec is None or not spec.submodule_search_locations:
            raise PipelineError(f"tidegate.{package} is not installed: install the wheel anew")
        root = Path(spec.submodule_search_locations[0])
        for path in root.rglob("*"):
            inside = path.relative_to(root)
            # Workers need neither the shim nor its sources and build products.
            if path.is_file() and not {"shim", "jars", "__pycache__"} & set(inside.parts):
                yield f"tidegate/{package}/{inside.as_posix()}", path


def _files_of(name: str) -> Iterator[tuple[str, Path]]:
    distribution = importlib.metadata.distribution(name)
    for file in distribution.files or []:
        path = Path(str(file.locate()))
        needless = _NOT_FOLDERS & set(file.parts[:-1]) or path.suffix in _NOT_SUFFIXES
        outside = file.parts[0] == ".." or file.parts[0].startswith("__editable__")
        if not needless and not outside and path.is_file():
            yield file.as_posix(), path


def _closure(name: str, extras: frozenset[str]) -> set[str]:
    """The distributions that ``name`` needs, itself included, by their names here."""
    found: set[str] = set()
    waiting = [(name, extras)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            distribution = importlib.metadata.distribution(one[0])
        except importlib.metadata.PackageNotFoundError as error:
            raise PipelineError(f"the package {one[0]} is not installed: run {how_to_get(EXTRA)}") from error
        found.add(_normal(one[0]))
        for text in distribution.requires or []:
            requirement = Requirement(text)
            if _normal(requirement.name) not in _LEFT_OUT and _applies(requirement, one[1]):
                waiting.append((_normal(requirement.name), frozenset(requirement.extras)))
    return found


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""}))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
