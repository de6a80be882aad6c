r"""Editing a Pulsar conf file (a Java properties file) as text: text in, text out.

Lines, comments, keys and values are those of ``java.util.Properties.load``: natural lines end in ``\n``,
``\r`` or ``\r\n``; a line that ends in an odd number of backslashes continues in the next one; a comment
starts with ``#`` or ``!`` and never continues; of a repeated key the last value counts.

Invariants:

- all but the values being set stays: comments, order, spaces, line endings; an added block ends with a
  newline, so that another line may follow it;
- ``undo(*apply(text, settings)) == text`` for every text; after other people's edits ``undo`` reverts only
  those changes of ``apply`` that nobody has touched since.

``decode`` and ``encode`` convert texts from and to bytes, and preserve any bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

OWNED_PREFIX = "tidegate"
"""Keys that start so mean nothing without Tidegate."""
BLOCK_TITLE = "# Added by `tidegate attach`; `tidegate detach` takes it away again."

_NATURAL_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True)
class Line:
    """A logical line: ``raw`` is all of it, with its end; ``key`` is None for a comment or blank line.

    ``head`` is the raw text before the value, ``ending`` the line ending after it ("" at the end of a file).
    """

    raw: str
    key: str | None = None
    value: str = ""
    head: str = ""
    ending: str = ""


@dataclass(frozen=True)
class Replaced:
    """A line that ``apply`` replaced: the key, and both raw texts without their line ending."""

    key: str
    old: str
    new: str


@dataclass(frozen=True)
class Edit:
    """The changes of ``apply`` to a text, for ``undo`` to revert.

    ``appended`` is the raw text put at the end ("" if none), ``appended_keys`` its keys with their values.
    """

    replaced: tuple[Replaced, ...]
    appended: str
    appended_keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Undone:
    """The text without an edit; ``kept`` names the keys that stay because they were changed since."""

    text: str
    kept: tuple[str, ...]


def decode(content: bytes) -> str:
    """A conf file's bytes as text: UTF-8, with invalid bytes preserved."""
    return content.decode("utf-8", errors="surrogateescape")


def encode(text: str) -> bytes:
    """The inverse of ``decode``."""
    return text.encode("utf-8", errors="surrogateescape")


def parse(text: str) -> Iterator[Line]:
    """The logical lines of ``text``; their ``raw`` joined is ``text``."""
    natural = [match[0] for match in _NATURAL_LINE.finditer(text) if match[0]]
    position = 0
    while position < len(natural):
        raw = natural[position]
        body, ending = _split_ending(raw)
        position += 1
        content = body.lstrip(" \t\f")
        if not content or content[0] in "#!" or content == "\\":
            yield Line(raw)
            continue
        joined, indent = content, len(body) - len(content)
        # Offsets into ``raw`` matter only before the value: kept while lines are joined.
        offsets = list(range(indent, len(body)))
        while _goes_on(joined) and position < len(natural):
            start = len(raw)
            raw += natural[position]
            body, ending = _split_ending(natural[position])
            position += 1
            content = body.lstrip(" \t\f")
            skipped = start + len(body) - len(content)
            joined = joined[:-1] + content
            offsets = [*offsets[:-1], *range(skipped, skipped + len(content))]
        if _goes_on(joined):  # At the end of the text a backslash counts for nothing.
            joined = joined[:-1]
        yield _pair(raw, joined, offsets, ending)


def values(text: str) -> dict[str, str]:
    """Every key with the value that Pulsar reads."""
    return {line.key: line.value for line in parse(text) if line.key is not None}


def apply(text: str, settings: Mapping[str, str]) -> tuple[str, Edit]:
    """``text`` with ``settings``: existing keys change in place, others go into a block at the end.

    The settings' keys must be plain words. A key with its value stays as it is.
    """
    lines = list(parse(text))
    last = {line.key: number for number, line in enumerate(lines) if line.key is not None}
    replaced: list[Replaced] = []
    added: dict[str, str] = {}
    for key, value in settings.items():
        number = last.get(key)
        if number is None:
            added[key] = value
        elif lines[number].value != value:
            line = lines[number]
            # Rewrite a key with no separator, or with its value on the next line.
            head = line.head if line.head.rstrip(" \t\f").endswith(("=", ":")) else f"{key}="
            new = f"{head}{escape(value)}{line.ending}"
            replaced.append(Replaced(key, _without_ending(line), new.removesuffix(line.ending)))
            lines[number] = Line(new, key, value, head, line.ending)
    body = "".join(line.raw for line in lines)
    appended = _block(body, added) if added else ""
    return body + appended, Edit(tuple(replaced), appended, tuple(added.items()))


def undo(text: str, edit: Edit) -> Undone:
    """``text`` without ``edit``. A line changed since stays, and its key is in ``kept``.

    Keys of the block that start with ``OWNED_PREFIX`` go, changed or not.
    """
    kept: list[str] = []
    lines = list(parse(_remove_block(text, edit, kept)))
    for change in reversed(edit.replaced):
        numbers = [number for number, line in enumerate(lines) if line.key == change.key]
        ours = [number for number in numbers if _without_ending(lines[number]) == change.new]
        if ours:
            ending = lines[ours[-1]].ending
            lines[ours[-1]] = Line(change.old + ending, change.key, ending=ending)
        elif numbers:
            kept.append(change.key)
        # Somebody deleted the line: it stays deleted.
    return Undone("".join(line.raw for line in lines), tuple(kept))


def remove(text: str, prefix: str) -> str:
    """``text`` without the keys that start with ``prefix`` and without the title of ``apply``'s block."""
    return _without(text, lambda key, _value: key.startswith(prefix))


def remove_keys(text: str, keys: Collection[str]) -> str:
    """``text`` without ``keys``."""
    return _without(text, lambda key, _value: key in keys)


def escape(value: str) -> str:
    r"""``value`` as a properties file writes it: in ASCII, so that the file's encoding does not matter."""
    text = value.replace("\\", "\\\\")
    if text.startswith((" ", "\t", "\f")):
        text = f"\\{text}"
    units = text.encode("utf-16-be", errors="surrogatepass")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)


def _pair(raw: str, joined: str, offsets: list[int], ending: str) -> Line:
    key_match = _KEY.match(joined)
    key_end = key_match.end() if key_match else 0
    separator = _SEPARATOR.match(joined, key_end)
    value_start = separator.end() if separator else key_end
    head_end = offsets[value_start] if value_start < len(joined) else len(raw) - len(ending)
    return Line(raw, _unescape(joined[:key_end]), _unescape(joined[value_start:]), raw[:head_end], ending)


def _goes_on(body: str) -> bool:
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _split_ending(raw: str) -> tuple[str, str]:
    body = raw.rstrip("\r\n")
    return body, raw[len(body) :]


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _ESCAPED.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)


def _block(body: str, added: Mapping[str, str]) -> str:
    ending = _ending_of(body)
    # The empty line is more than looks: it ends a last line that would continue (a backslash at its end).
    block = ending + ending.join([BLOCK_TITLE, *(f"{key}={escape(value)}" for key, value in added.items())])
    return block + ending if not body or body.endswith(("\n", "\r")) else ending + block + ending


def _ending_of(text: str) -> str:
    # The last ending: after it, a block that began with another one could merge with it ("\r" and "\n").
    endings = re.findall(r"\r\n|\r|\n", text)
    return endings[-1] if endings else "\n"


def _without_ending(line: Line) -> str:
    return line.raw.removesuffix(line.ending)


def _remove_block(text: str, edit: Edit, kept: list[str]) -> str:
    if not edit.appended:
        return text
    at = text.rfind(edit.appended)
    end = at + len(edit.appended)
    if at >= 0 and (end == len(text) or edit.appended[-1] in "\r\n" or text[end] in "\r\n"):
        before, after = text[:at], text[end:]
        merged = before and after and before[-1] not in "\r\n" and after[0] not in "\r\n"
        return before + _ending_of(edit.appended) * bool(merged) + after
    # The block was edited since: go line by line.
    ours = dict(edit.appended_keys)

    def goes(key: str, value: str) -> bool:
        return key in ours and (value == ours[key] or key.startswith(OWNED_PREFIX))

    lines = [line for line in parse(text) if line.key is not None]
    kept += [line.key for line in lines if line.key in ours and not goes(line.key, line.value)]
    return _without(text, goes)


def _without(text: str, goes: Callable[[str, str], bool]) -> str:
    rest: list[str] = []
    for line in parse(text):
        if line.raw.strip() == BLOCK_TITLE:
            if rest and not rest[-1].strip():
                rest.pop()  # The block's own empty line.
        elif line.key is None or not goes(line.key, line.value):
            rest.append(line.raw)
    return "".join(rest)
