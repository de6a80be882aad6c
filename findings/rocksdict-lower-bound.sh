#!/usr/bin/env bash
# rocksdict 0.3.29: ReadOptions.set_iterate_lower_bound sets the upper bound.
#
# Does:    scans the raw keys a to e with a lower bound of c, and with an upper bound of c.
# Expected: c, d, e for the lower one; a, b for the upper one.
# Seen:    a, b for both.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Options, Rdict, ReadOptions

db = Rdict(sys.argv[1] + "/db", Options(raw_mode=True))
for key in (b"a", b"b", b"c", b"d", b"e"):
    db[key] = b""
lower, upper = ReadOptions(), ReadOptions()
lower.set_iterate_lower_bound(b"c")
upper.set_iterate_upper_bound(b"c")
seen = list(db.keys(read_opt=lower)), list(db.keys(read_opt=upper))
print(f"lower bound c: {seen[0]}; upper bound c: {seen[1]}")
sys.exit(seen != ([b"a", b"b"], [b"a", b"b"]))
PYTHON
