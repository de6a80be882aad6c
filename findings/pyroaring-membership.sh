#!/usr/bin/env bash
# pyroaring 1.2.0: asking whether a number is in a bitmap raises if it could not be in any.
#
# Does:    asks for -1 and 2^32 in a BitMap with `in`, and takes them out with discard.
# Expected: False, and nothing, as of a set: neither is in it.
# Seen:    OverflowError each time.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyroaring==1.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from pyroaring import BitMap


def tried(do):
    try:
        return do()
    except OverflowError:
        return "OverflowError"


bitmap = BitMap([1])
seen = [tried(lambda: number in bitmap) for number in (-1, 2**32)]
seen += [tried(lambda: bitmap.discard(number)) for number in (-1, 2**32)]
print(f"in: {seen[:2]}, discard: {seen[2:]}; of a set: {[-1 in {1}, 2**32 in {1}]}")
sys.exit(seen != ["OverflowError"] * 4)
PYTHON
