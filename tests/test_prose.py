"""Plain English, held by counting: a rule's count per kind of text may fall, never rise.

``tests/testdata/prose.json`` has the counts; after a rewrite ``python -m tests.test_prose`` lowers them.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COUNTS = ROOT / "tests/testdata/prose.json"
RULES = {
    # "What was told is durable" hides its noun; a question may begin so.
    "a sentence begins with what, who, which, whose or whether": re.compile(
        r"(?:^|(?<=[.;:] ))(?:What|Who|Whose|Which|Whether)\b(?![^.;:]*\?)", re.MULTILINE
    ),
    "a passive of a phrasal verb": re.compile(
        r"\b(?:is|are|was|were|be|been|being)\s+(?:not\s+)?"
        r"(?:gone|put|taken|carried|looked|made|got|begun|given|done|cut|set|held|left|kept|thrown|let|dealt|lived)\s+"
        r"(?:on|off|out|up|down|over|away|back|for|at|after|with)\b"
    ),
}
_TABLE_OR_CODE = re.compile(r"^```.*?^```|^[|#][^\n]*|`[^`\n]*`|^    [^\n]*", re.DOTALL | re.MULTILINE)
_JAVA_COMMENT = re.compile(r"/\*\*?(.*?)\*/|//([^\n]*)", re.DOTALL)


def _python(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def _java(source: str) -> Iterator[str]:
    for block, line in _JAVA_COMMENT.findall(source):
        yield re.sub(r"^\s*\*? ?", "", block, flags=re.MULTILINE).strip() or line.strip()


def _texts() -> Iterator[tuple[str, str]]:
    """(kind, text) of all prose."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        yield "pages", _TABLE_OR_CODE.sub("", page.read_text(encoding="utf-8"))
    for folder in ("index", "plugin", "pipeline", "bench", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for text in _python(path.read_text(encoding="utf-8")):
                yield f"{folder}, Python", text
    for path in sorted((ROOT / "plugin/shim/src").rglob("*.java")):
        for text in _java(path.read_text(encoding="utf-8")):
            yield "the shim, Java", text


def counts() -> dict[str, dict[str, int]]:
    """Hits by rule and kind of text."""
    found: dict[str, dict[str, int]] = {rule: {} for rule in RULES}
    for kind, text in _texts():
        for rule, pattern in RULES.items():
            found[rule][kind] = found[rule].get(kind, 0) + len(pattern.findall(text))
    return found


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("What was told is durable.", "a sentence begins with what, who, which, whose or whether"),
        ("A log that is gone on with counts.", "a passive of a phrasal verb"),
    ],
)
def test_a_rule_finds_its_sentence(text: str, rule: str) -> None:
    assert [name for name, pattern in RULES.items() if pattern.search(text)] == [rule]


def test_a_question_may_begin_so() -> None:
    assert not any(pattern.search("What is wrong?") for pattern in RULES.values())


def test_no_more_than_there_was() -> None:
    allowed = json.loads(COUNTS.read_text(encoding="utf-8"))
    over = [
        f"{rule}: {kind} has {count}, at most {allowed[rule].get(kind, 0)}"
        for rule, kinds in counts().items()
        for kind, count in kinds.items()
        if count > allowed[rule].get(kind, 0)
    ]
    assert not over, "rewrite the new sentence, the noun first: " + "; ".join(over)


if __name__ == "__main__":
    COUNTS.write_text(json.dumps(counts(), indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(COUNTS.read_text(encoding="utf-8"))
