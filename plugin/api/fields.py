"""Values in a query string and in a body: each has a JSON Schema and a reader that agrees with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TIME_MAX = (1 << 63) - 1
_DIGITS = re.compile(r"\d{1,19}", re.ASCII)
Reader = Callable[[object], Any]
"""Makes a value from JSON. Raises ``ValueError`` with the requirement."""


@dataclass(frozen=True)
class Field:
    """A value that a request may have. `text` reads it from a query string."""

    schema: Mapping[str, Any]
    read: Reader
    text: Callable[[str], object] = str


def number(description: str, least: int, most: int = TIME_MAX, unit: str = "") -> Field:
    """A whole number in [least, most]; a refusal names the unit."""
    said = f"must be a whole number{unit and f' of {unit},'} from {least} to {most}"

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(said)
        return value

    def text(value: str) -> int:
        if _DIGITS.fullmatch(value) is None:
            raise ValueError(said)
        return int(value)

    schema = {"type": "integer", "minimum": least, "maximum": most, "description": description}
    return Field(schema, read, text)


def words(description: str, length_max: int, pattern: str | None = None, example: str = "") -> Field:
    """A text of 1 to `length_max` characters."""
    allowed = None if pattern is None else re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= length_max:
            raise ValueError(f"must be a text of 1 to {length_max} characters")
        if allowed is not None and allowed.fullmatch(value) is None:
            raise ValueError(f"must be written as in {example}")
        return value

    schema = {"type": "string", "minLength": 1, "maxLength": length_max, "description": description}
    more = {} if pattern is None else {"pattern": f"^{pattern}$"}
    return Field(schema | more | ({"examples": [example]} if example else {}), read)


def truth(description: str) -> Field:
    """True or false."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    return Field({"type": "boolean", "description": description}, read)


def only_true(description: str) -> Field:
    """True, if present."""

    def read(value: object) -> bool:
        if value is not True:
            raise ValueError("must be true, or be left out")
        return True

    return Field({"const": True, "description": description}, read)


def texts(description: str, count_max: int, one: Mapping[str, Any], one_length_max: int) -> Field:
    """1 to `count_max` texts."""

    def read(value: object) -> list[str]:
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list of texts, of one at least")
        if len(value) > count_max:
            raise TooManyError(f"has {len(value)} members, and {count_max} can be in one request")
        for each in value:
            if not isinstance(each, str) or len(each) > one_length_max:
                raise ValueError(f"must be a list of texts, each of {one_length_max} characters at most")
        return value

    schema = {"type": "array", "items": one, "minItems": 1, "maxItems": count_max}
    return Field(schema | {"description": description}, read)


class TooManyError(ValueError):
    """A list is longer than one request may have."""
