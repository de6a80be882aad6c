#!/usr/bin/env bash
# pyroaring 1.2.0: 1.5 is in BitMap([1]), and discard(1.5) takes 1 out.
#
# Does:    asks for 1.5 in a BitMap and a BitMap64 of 1, makes one of 1.5 and 2.9, and discards 1.5; the same with a
#          set.
# Expected: no, as of a set; or TypeError, as for a string and from array.array("I").
# Seen:    yes; 1 and 2; and the 1 is gone: fractions are cut off in silence.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from pyroaring import BitMap, BitMap64


def asked(kind):
    numbers = kind([1])
    within = 1.5 in numbers
    numbers.discard(1.5)
    return within, sorted(kind([1.5, 2.9])), sorted(numbers)


seen = [asked(kind) for kind in (set, BitMap, BitMap64)]
for kind, (within, made, left) in zip(("set", "BitMap", "BitMap64"), seen, strict=True):
    print(f"{kind}: 1.5 in it {within}, made of 1.5 and 2.9 {made}, left after discard {left}")
sys.exit(seen != [(False, [1.5, 2.9], [1]), (True, [1, 2], []), (True, [1, 2], [])])
PYTHON
