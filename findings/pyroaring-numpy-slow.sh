#!/usr/bin/env bash
# pyroaring 1.2.0: a bitmap of a NumPy array takes several times as long as one of the same numbers in an array.array.
#
# Does:    makes a BitMap and a BitMap64 of 100,000 sorted numbers, from a NumPy array and from an array.array that
#          copies it, each the fastest of 15 times; numpy 2.4.6.
# Expected: about the same: both are buffers of 4 or 8 bytes a number.
# Seen:    equal bitmaps; with NumPy's array 7.8 and 3.6 times as long, the copy counted: each number becomes an object.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import timeit
from array import array

import numpy as np
from pyroaring import BitMap, BitMap64

numbers = np.sort(np.random.default_rng(7).choice(5_000_000, 100_000, replace=False))
changed = False
for bitmap, code, kind in ((BitMap, "I", np.uint32), (BitMap64, "Q", np.uint64)):
    given = numbers.astype(kind)
    slow, fast = (
        min(timeit.repeat(make, number=1, repeat=15))
        for make in (lambda: bitmap(given), lambda: bitmap(array(code, given.tobytes())))
    )
    same = bitmap(given) == bitmap(array(code, given.tobytes()))
    print(f"{bitmap.__name__}: equal {same}, {slow / fast:.1f} times as long")
    changed |= not same or slow < 2 * fast
sys.exit(changed)
PYTHON
