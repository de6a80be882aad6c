#!/usr/bin/env bash
# rocksdict 0.3.29: `for x in db` yields the values of the keys 0, 1, 2, … until one is missing.
#
# Does:    iterates over a database, which has the methods of a dict, by itself.
# Expected: its keys, as of a dict, or a TypeError.
# Seen:    with keys 0 and 1 their values; with the key 'a' alone a KeyError. There is no __iter__, so Python falls
#          back to db[0], db[1], …, and that ends by IndexError only, which a missing key is not.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict

db = Rdict(sys.argv[1] + "/db")
db[0], db[1] = "first", "second"
seen = []
try:
    for one in db:
        seen.append(one)
except KeyError as error:
    seen.append(f"KeyError: {error}")
print(seen)
sys.exit(seen[:2] != ["first", "second"] or not str(seen[-1]).startswith("KeyError"))
PYTHON
