#!/usr/bin/env bash
# roaringbitmap 0.7.4 (Python): clamp() to a range below all values gives up to 65,536 values from above it.
#
# Does:    clamps the numbers 100,000 … 169,999 to three ranges of ten: below all, among them and above all.
# Expected: none, ten, none: "new set with range of values restricted to (start, stop)".
# Seen:    31,072 for the one below, 100,000 … 131,071: the whole of the first block of 65,536. The others are right.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check roaringbitmap==0.7.4
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from roaringbitmap import RoaringBitmap

due = RoaringBitmap(range(100_000, 170_000))
seen = {}
for start in (0, 120_000, 200_000):
    seen[start] = list(due.clamp(start, start + 10))
    ends = f", {seen[start][0]} … {seen[start][-1]}" if seen[start] else ""
    print(f"clamp({start}, {start + 10}): {len(seen[start])} numbers{ends}")
sys.exit(seen != {0: list(range(100_000, 131_072)), 120_000: list(range(120_000, 120_010)), 200_000: []})
PYTHON
