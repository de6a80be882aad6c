#!/usr/bin/env bash
# NumPy 2.4.6: searchsorted of a uint64 array with a Python int is wrong above 2^53.
#
# Does:    looks up 2^53 + 1 in the array [2^53, 2^53 + 1, 2^53 + 2] of uint64, as a Python int and as np.uint64.
# Expected: 1 from the left, either way.
# Seen:    0 for the Python int, 1 for np.uint64: the int becomes an int64, and both sides become float64, of which a
#          copy of the array is made as well.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import numpy as np

array = np.array([2**53, 2**53 + 1, 2**53 + 2], dtype=np.uint64)
seen = int(array.searchsorted(2**53 + 1)), int(array.searchsorted(np.uint64(2**53 + 1)))
print(f"Python int {seen[0]}, np.uint64 {seen[1]}")
sys.exit(seen != (0, 1))
PYTHON
