#!/usr/bin/env bash
# rocksdict 0.3.29: key_may_exist(key, fetch=True) gives None as the value of a key that has one.
#
# Does:    stores a=1, asks before and after flush(), and stores b=None.
# Expected: the value, or a sign that it was not fetched.
# Seen:    (True, 1) before the flush and (True, None) after it, the same as for b, whose value is None.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict

db = Rdict(sys.argv[1] + "/db")
db["a"], db["b"] = 1, None
before = db.key_may_exist("a", True)
db.flush()
after, none = db.key_may_exist("a", True), db.key_may_exist("b", True)
print(f"a before the flush {before}, after it {after}; b, which is None: {none}")
sys.exit((before, after, none) != ((True, 1), (True, None), (True, None)))
PYTHON
