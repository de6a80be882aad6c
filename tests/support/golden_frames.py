"""Golden frames: hex with comments; of a bad one, the error that it must give."""

from __future__ import annotations

import re
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "testdata" / "frames"
GOOD = sorted(GOLDEN.glob("[0-9]*.hex"))
BAD = sorted(GOLDEN.glob("bad_*.hex"))


def golden_bytes(path: Path) -> bytes:
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in path.read_text("utf-8").splitlines()))


def golden_error(path: Path) -> int | None:
    found = re.search(r"^# error (\d+)$", path.read_text("utf-8"), re.MULTILINE)
    return None if found is None else int(found[1])
