#!/usr/bin/env bash
# rocksdict 0.3.29: items() of a snapshot shows what was written after the snapshot; snapshot[key] does not.
#
# Does:    writes a=1, takes a snapshot, writes a=2 and b=2, then reads the snapshot both ways.
# Expected: the state when the snapshot was taken, both ways: 1 and [('a', 1)].
# Seen:    snapshot['a'] is 1, and list(snapshot.items()) is [('a', 2), ('b', 2)].
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict

db = Rdict(sys.argv[1] + "/db")
db["a"] = 1
snapshot = db.snapshot()
db["a"] = 2
db["b"] = 2
seen = snapshot["a"], list(snapshot.items())
print(f"snapshot['a'] = {seen[0]}, snapshot.items() = {seen[1]}")
sys.exit(seen != (1, [("a", 2), ("b", 2)]))
PYTHON
