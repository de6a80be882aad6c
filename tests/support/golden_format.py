"""Golden files: hex with comments, the key above `---`, the value below."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DIRECTORY = Path(__file__).parent.parent / "testdata" / "format"


class Golden(NamedTuple):
    """One stored key and value."""

    key: bytes
    value: bytes


def golden(name: str) -> Golden:
    """Read `name`.hex."""
    lines = (DIRECTORY / f"{name}.hex").read_text().splitlines()
    data = [line.split("#")[0].strip() for line in lines]
    border = data.index("---")
    return Golden(bytes.fromhex("".join(data[:border])), bytes.fromhex("".join(data[border + 1 :])))
