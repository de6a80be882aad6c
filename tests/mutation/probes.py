"""Marks in a module that count how often a history comes to each mutant's statement.

The simulator need not play a history that does not come there: a seed gives the same history each time.
Example, of a mutant numbered 7 at the second line:

    if a:                  if a:
        b(c + 1)     →         _tidegate_probes[7] += 1
                               b(c + 1)
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterable

from tests.mutation.mutants import Mutant

_NAME = "_tidegate_probes"


def probed(source: bytes, mutants: Iterable[tuple[int, Mutant]]) -> bytes:
    """The module with a mark before the innermost statement of each of its mutants in a function; another
    form, the same meaning.
    """
    tree = ast.parse(source)
    starts = _starts(source)
    for number, mutant in mutants:
        block = _block(tree, _place(starts, mutant.start), _place(starts, mutant.stop))
        if block is not None:
            body, at = block
            body.insert(at, _mark(number))
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def runs_on_import(source: bytes, mutant: Mutant) -> bool:
    """True if its statement is in no function: every history has met it."""
    starts = _starts(source)
    return _block(ast.parse(source), _place(starts, mutant.start), _place(starts, mutant.stop)) is None


def counts() -> Counter[int]:
    """How often each mark was met since the first call, by the number of its mutant."""
    found: Counter[int] | None = getattr(builtins, _NAME, None)
    if found is None:
        found = Counter()
        setattr(builtins, _NAME, found)
    return found


_Place = tuple[int, int]


def _block(tree: ast.Module, start: _Place, stop: _Place) -> tuple[list[ast.stmt], int] | None:
    """The list of statements that has the innermost one around these places, and where; None if no function
    has it."""
    found: tuple[list[ast.stmt], int] | None = None
    nodes: list[tuple[ast.AST, bool]] = [(tree, False)]
    while nodes:
        node, is_within = nodes.pop()
        is_within = is_within or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for _, value in ast.iter_fields(node):
            if not isinstance(value, list):
                continue
            for at, each in enumerate(value):
                if isinstance(each, ast.ExceptHandler | ast.match_case):
                    nodes.append((each, is_within))
                elif isinstance(each, ast.stmt) and _has(each, start, stop):
                    nodes.append((each, is_within))
                    if is_within and not _is_mark(each):
                        found = value, at
    return found


def _has(node: ast.stmt, start: _Place, stop: _Place) -> bool:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return (node.lineno, node.col_offset) <= start and stop <= (node.end_lineno, node.end_col_offset)


def _mark(number: int) -> ast.stmt:
    (mark,) = ast.parse(f"{_NAME}[{number}] += 1").body
    for node in ast.walk(mark):
        if isinstance(node, ast.expr | ast.stmt):
            # Around no mutant.
            node.lineno = node.end_lineno = node.col_offset = node.end_col_offset = 0
    return mark


def _is_mark(node: ast.stmt) -> bool:
    return node.lineno == 0


def _starts(source: bytes) -> list[int]:
    found = [0]
    for line in source.splitlines(keepends=True):
        found.append(found[-1] + len(line))
    return found


def _place(starts: list[int], offset: int) -> _Place:
    """Line from 1 on, and column in bytes."""
    line = max(at for at, start in enumerate(starts) if start <= offset)
    return line + 1, offset - starts[line]
