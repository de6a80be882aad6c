"""Runs a module as if only Tidegate with some extras were installed.

Arguments: EXTRAS MODULE [ARGUMENT...]. EXTRAS is a list with commas, or ``-``. Modules that pip would not
have installed cannot be imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def installed(distribution: str, extras: frozenset[str], found: set[tuple[str, frozenset[str]]]) -> None:
    """Add the distribution and all that it requires to ``found``."""
    name = canonicalize_name(distribution)
    if (name, extras) in found:
        return
    found.add((name, extras))
    for line in importlib.metadata.requires(name) or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            try:
                installed(wanted.name, frozenset(wanted.extras), found)
            except importlib.metadata.PackageNotFoundError:
                continue  # for another platform


class Absent(importlib.abc.MetaPathFinder):
    """Finds nothing, so that nobody else does, for modules that belong to absent distributions."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in self.modules:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return None


def main() -> None:
    extras = frozenset() if sys.argv[1] == "-" else frozenset(sys.argv[1].split(","))
    found: set[tuple[str, frozenset[str]]] = set()
    installed("tidegate", extras, found)
    there = {name for name, _ in found}
    owners = importlib.metadata.packages_distributions()
    absent = {
        module
        for module, names in owners.items()
        if not any(canonicalize_name(name) in there for name in names)
    }
    for module in [name for name in sys.modules if name.partition(".")[0] in absent]:
        del sys.modules[module]
    sys.meta_path.insert(0, Absent(absent))
    del sys.argv[:2]
    sys.path[0] = ""  # as `python -m` has it
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
