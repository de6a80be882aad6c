"""A copy of the source tree, in which one module at a time is replaced.

Bytecode is copied with its source and times, so that only the mutant is compiled. Nothing writes bytecode
there: a mutant of the same size and second would pass for the compiled one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.mutation.mutants import Mutant

_PACKAGES = ("index", "plugin", "pipeline")
_BUILT = ("plugin/jars",)


class Copy:
    """The files of a checkout that git knows, and what was built of them, in another folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (root / name).is_file():
                _copy(root / name, folder / name)
        for built in _BUILT:
            shutil.copytree(root / built, folder / built, dirs_exist_ok=True)
        for package in (*_PACKAGES, "tests"):
            for compiled in (root / package).rglob("__pycache__/*.pyc"):
                _copy(compiled, folder / compiled.relative_to(root))
        (folder / "build/links/tidegate").mkdir(parents=True)
        for package in _PACKAGES:
            (folder / "build/links/tidegate" / package).symlink_to(folder / package)
        (folder / "build/links/tidegate/__init__.py").symlink_to(folder / "door/__init__.py")

    @property
    def path(self) -> list[str]:
        """Where Python finds it: before any installed one."""
        return [str(self.folder / "build/links"), str(self.folder)]

    @contextmanager
    def mutated(self, mutant: Mutant) -> Iterator[None]:
        """A module is another one for a while."""
        source = (self.folder / mutant.path).read_bytes()
        with self.rewritten({mutant.path: mutant.applied(source)}):
            yield

    @contextmanager
    def rewritten(self, sources: Mapping[str, bytes]) -> Iterator[None]:
        """Modules have other texts for a while."""
        modules = {self.folder / path: source for path, source in sources.items()}
        for module, source in modules.items():
            shutil.copy2(module, module.with_suffix(".kept"))
            module.write_bytes(source)
        try:
            yield
        finally:
            for module in modules:
                module.with_suffix(".kept").replace(module)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
