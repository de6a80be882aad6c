"""Small faults in a module, each one change of its text.

Of the text, not of the syntax tree: lines stay in place, and a mutant reads as a diff. Left out are
annotations, log lines, error messages, doc strings, code for type checkers alone, and the invariants that
tests walk (`check`): no faults of the product.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PARTS = ("index", "plugin/daemon")
"""The folders that are mutated."""

_COMPARISONS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
}
_COMPARISON = re.compile(r"not\s+in|is\s+not|<=|>=|==|!=|<|>|\bin\b|\bis\b")
_OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "//",
    "//": "*",
    "/": "*",
    "%": "*",
    "|": "&",
    "&": "|",
    "<<": ">>",
    ">>": "<<",
}
_OPERATOR = re.compile(r"\*\*|//|<<|>>|[-+*/%|&]")
_LOGS = {"debug", "info", "warning", "error", "exception", "log"}
_LOGGERS = {"_LOG", "log", "_log", "logger"}
_NOT_THE_PRODUCT = {"check", "__repr__", "__str__"}


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of one module: what is between two offsets (in its UTF-8 bytes) is another text."""

    path: str
    line: int
    start: int
    stop: int
    kind: str
    new: str
    old: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {_short(self.old)} → {_short(self.new)}"

    def applied(self, source: bytes) -> bytes:
        """The module's text with it. Raises ValueError if the text is another one."""
        if source[self.start : self.stop].decode() != self.old:
            raise ValueError(f"{self.path} has changed: {self} is of another text")
        return source[: self.start] + self.new.encode() + source[self.stop :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


def every_mutant(root: Path) -> list[Mutant]:
    """Of all modules of `PARTS` below the root of a source tree."""
    paths = (path for part in PARTS for path in sorted((root / part).rglob("*.py")))
    return [mutant for path in paths for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes())]


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, from each module in proportion, shuffled: the first few are a fair part."""
    luck = random.Random(seed)  # noqa: S311 a sample
    step = len(mutants) / min(count, len(mutants))
    start = luck.random() * step
    chosen = [mutants[int(start + at * step)] for at in range(min(count, len(mutants)))]
    luck.shuffle(chosen)
    return chosen


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"`{line if len(line) <= 60 else line[:57] + '…'}`"


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._functions: list[str] = []

    # ---- where things are

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _stop(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr | ast.stmt) -> str:
        return self._source[self._start(node) : self._stop(node)].decode()

    def _note(self, kind: str, start: int, stop: int, new: str) -> None:
        line = self._source.count(b"\n", 0, start) + 1
        old = self._source[start:stop].decode()
        self.found.append(Mutant(self._path, line, start, stop, kind, new, old))

    def _replace(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        self._note(kind, self._start(node), self._stop(node), new)

    def _between(
        self, kind: str, left: ast.expr, right: ast.expr, token: re.Pattern[str], others: dict[str, str]
    ) -> None:
        """Another operator between two operands, of which parentheses may be around either."""
        start, stop = self._stop(left), self._start(right)
        found = token.search(self._source[start:stop].decode())
        new = None if found is None else others.get(" ".join(found[0].split()))
        if found is not None and new is not None:
            self._note(kind, start + found.start(), start + found.end(), new)

    # ---- omissions

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in _NOT_THE_PRODUCT:
            return
        self._functions.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._visit_all(node.body)
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._functions.append("")
        self._visit_all(node.body)
        self._functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts are for people."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """It tells type checkers."""

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        """A pattern takes no expression."""

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    # ---- statements

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_log(node.value):
            return
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace("statement left out", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        is_type = not self._functions and isinstance(node.value, ast.BinOp | ast.Subscript)
        if is_type:
            return
        changes = any(isinstance(each, ast.Attribute | ast.Subscript | ast.Tuple) for each in node.targets)
        # Without its first value an attribute is missing, which anything finds.
        names = any(isinstance(each, ast.Tuple) and _has_names(each) for each in node.targets)
        if changes and not names and self._functions and self._functions[-1] != "__init__":
            self._replace("statement left out", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace("statement left out", node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace("statement left out", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("statement left out", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("statement left out", node, "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._replace("statement left out", node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Its text is for people; that it is raised at all is its condition's matter."""

    # ---- conditions

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in self._text(node.test):
            return
        self._negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant):
            return
        is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        plain = isinstance(test, ast.Compare) and len(test.ops) == 1 and not isinstance(test.ops[0], _ORDERS)
        if not is_not and not plain:  # these are turned into their contrary below
            self._replace("condition negated", test, f"not ({self._text(test)})")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("condition negated", node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        others = {"and": "or", "or": "and"}
        self._between("and, or", node.values[0], node.values[1], re.compile(r"\b(and|or)\b"), others)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for right in node.comparators:
            self._between("comparison", left, right, _COMPARISON, _COMPARISONS)
            left = right
        self.generic_visit(node)

    # ---- values

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return
        self._between("operator", node.left, node.right, _OPERATOR, _OPERATORS)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _is_log(node):
            return
        if isinstance(node.func, ast.Name) and node.func.id in {"min", "max", "any", "all"}:
            others = {"min": "max", "max": "min", "any": "all", "all": "any"}
            self._replace("function", node.func, others[node.func.id])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace("constant", node, f"({node.value} + 1)")


_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def _is_log(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner = node.func.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return node.func.attr in _LOGS and name in _LOGGERS


def _has_names(target: ast.Tuple) -> bool:
    return any(isinstance(each, ast.Name) for each in target.elts)
