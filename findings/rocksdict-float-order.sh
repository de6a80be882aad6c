#!/usr/bin/env bash
# rocksdict 0.3.29: float keys below zero come after all others, and in reverse; int keys are in order.
#
# Does:    lists the keys of a database with ints of both signs, and of one with floats of both signs.
# Expected: ascending order of both, as items(from_key=…) and delete_range(begin, end) rely on it.
# Seen:    ints ascend; the floats come as 0.5, 1.5, -0.5, -1.5, and delete_range(-1.5, 1.5) is refused with
#          "end key comes before start key".
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict

ints, floats = Rdict(sys.argv[1] + "/ints"), Rdict(sys.argv[1] + "/floats")
for key in (-300, -1, 0, 1, 300):
    ints[key] = 1
for key in (-1.5, -0.5, 0.5, 1.5):
    floats[key] = 1
seen = list(ints.keys()), list(floats.keys())
try:
    floats.delete_range(-1.5, 1.5)
    refused = ""
except Exception as error:
    refused = str(error)
print(f"ints {seen[0]}, floats {seen[1]}; delete_range(-1.5, 1.5): {refused}")
sys.exit(seen != ([-300, -1, 0, 1, 300], [0.5, 1.5, -0.5, -1.5]) or "end key comes before" not in refused)
PYTHON
