#!/usr/bin/env bash
# rocksdict 0.3.29: `del db[key]` of a key that is not there does nothing; db[key] raises KeyError.
#
# Does:    deletes and reads a key that was never written, of a database and of a dict.
# Expected: KeyError each time, as the two look alike.
# Seen:    no error of `del` on the database, which is left with one deletion more to store.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import Rdict


def tried(mapping):
    found = []
    for do in (lambda: mapping.__delitem__("missing"), lambda: mapping["missing"]):
        try:
            do()
            found.append("nothing")
        except KeyError:
            found.append("KeyError")
    return found


db = Rdict(sys.argv[1] + "/db")
before = db.latest_sequence_number()
seen = tried({}), tried(db)
print(f"dict: del {seen[0][0]}, read {seen[0][1]}; rocksdict: del {seen[1][0]}, read {seen[1][1]}")
print(f"operations stored: {db.latest_sequence_number() - before}")
sys.exit(seen != (["KeyError", "KeyError"], ["nothing", "KeyError"]) or db.latest_sequence_number() != before + 1)
PYTHON
