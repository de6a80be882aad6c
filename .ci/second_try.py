"""Tries once more the tests that failed, if they may be: exit code 0 if all of them pass.

Arguments: the cache directories of the runs of pytest that failed; there are the names of the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
"""More of them are no coincidence."""
DRAWN = ("tests/sim/", "tests/torture/", "tests/index/")
"""What draws new histories each time, or waits for nobody: that it passes the next time tells nothing."""


def main() -> None:
    """Look, say what is decided, and try."""
    failed = sorted(name for cache in sys.argv[1:] for name in failed_in(Path(cache)))
    drawn = [name for name in failed if name.startswith(DRAWN)]
    if len(failed) > MOST:
        sys.exit(f"no second try: {len(failed)} tests failed")
    if drawn:
        sys.exit(f"no second try of {', '.join(drawn)}")
    print("FAILED ONCE, to be mended even if they pass now:")
    print(*failed, sep="\n", flush=True)
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", *failed], check=False).returncode)  # noqa: S603


def failed_in(cache: Path) -> list[str]:
    """What pytest keeps there; if that is nothing, it was no test that failed, and there is no second try."""
    path = cache / "v" / "cache" / "lastfailed"
    names = list(json.loads(path.read_text())) if path.exists() else []
    if not names:
        sys.exit(f"no second try: what failed was not a test ({cache.name})")
    return names


if __name__ == "__main__":
    main()
