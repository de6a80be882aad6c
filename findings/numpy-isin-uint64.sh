#!/usr/bin/env bash
# NumPy 2.4.6: what np.isin says of uint64 and Python ints depends on how long the list is.
#
# Does:    asks which of the uint64 2^53 and 2^53 + 1 are in a list with 2^53, of one int, and of twenty.
# Expected: the first one only, both times.
# Seen:    the first one only of the short list, both of the long one: above about ten elements both sides are joined
#          into one array, which is float64. With a list that is an array of uint64 the answer is right.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import numpy as np

array = np.array([2**53, 2**53 + 1], dtype=np.uint64)
long = [2**53, *range(19)]
seen = [np.isin(array, one).tolist() for one in ([2**53], long, np.array(long, dtype=np.uint64))]
print(f"short {seen[0]}, long {seen[1]}, long uint64 {seen[2]}")
sys.exit(seen != [[True, False], [True, True], [True, False]])
PYTHON
