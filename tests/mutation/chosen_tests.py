"""Tests to run against a mutant, in order: those of its module first."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.mutants import Mutant

_FOLDERS = ("tests/index", "tests/plugin/daemon")
"""Of what is mutated. The simulator is left out, since it is measured by itself."""


def stages(root: Path, mutant: Mutant) -> list[list[str]]:
    """Four groups of test files, perhaps empty: named as the module or alike, importing it, the others of its
    part of the product, the others of both.
    """
    module = Path(mutant.path)
    dotted = "tidegate." + ".".join(module.with_suffix("").parts)
    every = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("test_*.py"))]
    part = [path for path in every if path.relative_to(root).parts[1] == module.parts[0]]
    alike = "test_" + module.stem.split("_")[0]
    own = [path for path in part if path.stem.startswith(alike)]
    near = [path for path in every if _imports(path, dotted)]
    seen: set[Path] = set()
    found = []
    for stage in (sorted(own, key=lambda path: path.stem != f"test_{module.stem}"), near, part, every):
        new = [path for path in stage if path not in seen]
        seen.update(new)
        found.append([str(path.relative_to(root)) for path in new])
    return found


def _imports(test: Path, module: str) -> bool:
    package, _, name = module.rpartition(".")
    text = test.read_text(encoding="utf-8")
    return module in text or any(
        line.startswith(f"from {package} import") and name in line for line in text.splitlines()
    )
