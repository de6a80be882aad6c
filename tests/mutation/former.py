"""Mutants of a former commit, in today's text: a sample stays the same while the code goes on."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from tests.mutation.mutants import PARTS, Mutant, mutants_of


class UnknownCommitError(Exception):
    """Git does not know the commit. Its text is a line."""


def former_mutants(root: Path, commit: str) -> list[Mutant]:
    """As `every_mutant`, of the files of that commit."""
    listed = _git(root, "ls-tree", "-r", "--name-only", "-z", commit, *PARTS).decode().split("\0")
    names = sorted((Path(name) for name in listed if name.endswith(".py")), key=_place)
    return [mutant for name in names for mutant in mutants_of(str(name), former_source(root, commit, name))]


def former_source(root: Path, commit: str, path: Path | str) -> bytes:
    """The module's text at that commit."""
    return _git(root, "show", f"{commit}:{path}")


def moved(mutant: Mutant, former: bytes, today: bytes) -> Mutant | None:
    """The same change of today's text: of the same lines, or of the only equal text. None without either."""
    first = former.count(b"\n", 0, mutant.start)
    last = former.count(b"\n", 0, mutant.stop)
    lines, others = former.splitlines(keepends=True), today.splitlines(keepends=True)
    for at, there, count in SequenceMatcher(None, lines, others, autojunk=False).get_matching_blocks():
        if at <= first and last < at + count:
            shift = _size(others[:there]) - _size(lines[:at])
            return _shifted(mutant, shift, there - at)
    old = mutant.old.encode()
    is_word = len(mutant.old.split()) == 1  # which stands for anything
    if is_word or today.count(old) != 1:
        return None
    start = today.index(old)
    return _shifted(mutant, start - mutant.start, today.count(b"\n", 0, start) + 1 - mutant.line)


def _shifted(mutant: Mutant, by_bytes: int, by_lines: int) -> Mutant:
    return replace(
        mutant, line=mutant.line + by_lines, start=mutant.start + by_bytes, stop=mutant.stop + by_bytes
    )


def _size(lines: list[bytes]) -> int:
    return sum(map(len, lines))


def _place(name: Path) -> tuple[int, Path]:
    """Its part first, as `every_mutant` has it."""
    return next(at for at, part in enumerate(PARTS) if name.is_relative_to(part)), name


def _git(root: Path, *arguments: str) -> bytes:
    ran = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip().splitlines()
        raise UnknownCommitError(said[0] if said else f"git {arguments[0]} ends with {ran.returncode}")
    return ran.stdout
