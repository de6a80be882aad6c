#!/usr/bin/env bash
# rocksdict 0.3.29: close() does not close a database of which there is a snapshot.
#
# Does:    takes a snapshot, closes the database, reads the snapshot, opens the database again; once more without the
#          snapshot.
# Expected: reading raises DbClosedError, as db[key] does; opening works.
# Seen:    the snapshot still reads; opening is refused, "lock hold by current process", until the snapshot is gone.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rocksdict==0.3.29
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from rocksdict import DbClosedError, Rdict

path = sys.argv[1] + "/db"
db = Rdict(path)
db["a"] = 1
snapshot = db.snapshot()
db.close()
try:
    db["a"]
    closed = False
except DbClosedError:
    closed = True
read = snapshot["a"]
try:
    Rdict(path)
    again = "opened"
except Exception as error:
    again = str(error)
del snapshot
last = Rdict(path)["a"]
print(f"db[key] says closed: {closed}; snapshot reads {read}; opened again: {again[:45]}; without it: {last}")
sys.exit((closed, read, "lock hold by current process" in again, last) != (True, 1, True, 1))
PYTHON
