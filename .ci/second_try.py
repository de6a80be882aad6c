"""Whether the tests that failed may be tried once more: exit code 0 if so.

Argument: the file in which pytest keeps the names of those that failed; it is not there if none did.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

MOST = 3
"""More of them are no coincidence."""
DRAWN = ("tests/sim/", "tests/torture/", "tests/index/")
"""What draws new histories each time, or waits for nobody: that it passes the next time tells nothing."""


def main() -> None:
    """Look, and say what is decided."""
    path = Path(sys.argv[1])
    failed = sorted(json.loads(path.read_text())) if path.exists() else []
    drawn = [name for name in failed if name.startswith(DRAWN)]
    if not failed:
        sys.exit("no second try: it was not a Python test that failed")
    if len(failed) > MOST:
        sys.exit(f"no second try: {len(failed)} tests failed")
    if drawn:
        sys.exit(f"no second try of {', '.join(drawn)}")
    print("FAILED ONCE, to be mended even if they pass now:")
    print(*failed, sep="\n")


if __name__ == "__main__":
    main()
