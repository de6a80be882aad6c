#!/usr/bin/env bash
# litequeue 0.9: the first maxsize of a queue file holds for ever, and full() does not know it.
#
# Does:    makes a queue file with maxsize=2, puts two messages, and opens it with maxsize=10, then with none.
# Expected: room for eight more, then no limit: both openings accept the new size, and full() is False.
# Seen:    put() raises "Max queue length reached: 2" each time. The limit is a trigger in the file, made if there is
#          none yet.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litequeue==0.9
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sqlite3
import sys

from litequeue import LiteQueue


def tried(queue):
    try:
        queue.put("one more")
    except sqlite3.IntegrityError as error:
        return str(error)
    return "stored"


path = sys.argv[1] + "/queue.db"
queue = LiteQueue(path, maxsize=2)
for message in "ab":
    queue.put(message)
queue.close()
seen = []
for maxsize in (10, None):
    queue = LiteQueue(path, maxsize=maxsize)
    seen.append((maxsize, queue.full(), tried(queue)))
    queue.close()
for maxsize, full, answer in seen:
    print(f"maxsize={maxsize}: full() {full}, put(): {answer}")
error = "Max queue length reached: 2"
sys.exit(seen != [(10, False, error), (None, False, error)])
PYTHON
