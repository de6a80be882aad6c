#!/usr/bin/env bash
# persist-queue 1.1.0: a FILOSQLiteQueue is first in, first out if it does not commit by itself.
#
# Does:    puts a, b, c into a FILOSQLiteQueue and gets three, with auto_commit=True and with auto_commit=False.
# Expected: c, b, a both times: the class is a "FILO SQLite queue", and its README has auto_commit as a matter of speed.
# Seen:    a, b, c with auto_commit=False.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check persist-queue==1.1.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from persistqueue import FILOSQLiteQueue

seen = {}
for auto_commit in (True, False):
    queue = FILOSQLiteQueue(f"{sys.argv[1]}/{auto_commit}", auto_commit=auto_commit)
    for item in "abc":
        queue.put(item)
    seen[auto_commit] = "".join(queue.get(block=False) for _ in range(3))
print(seen)
sys.exit(seen != {True: "cba", False: "abc"})
PYTHON
