#!/usr/bin/env bash
# persist-queue 1.1.0: a queue on SQLite takes None, stores it, and throws it away instead of giving it out.
#
# Does:    puts None and 1 into each kind of queue, and gets twice without blocking.
# Expected: None, 1, as from queue.Queue and from the queue on files of the same library; None is a common sign of the
#          end.
# Seen:    the first get() raises Empty though qsize() is 2, and the second one gives 1: None is gone from the file.
#          SQLiteAckQueue leaves it there as not acknowledged.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check persist-queue==1.1.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from persistqueue import Empty, PriorityQueue, Queue, SQLiteAckQueue, SQLiteQueue


def got(queue):
    try:
        return queue.get(block=False)
    except Empty:
        return "Empty"


seen = {}
for kind in (Queue, SQLiteQueue, PriorityQueue, SQLiteAckQueue):
    queue = kind(f"{sys.argv[1]}/{kind.__name__}")
    queue.put(None)
    queue.put(1)
    seen[kind.__name__] = (queue.qsize(), got(queue), got(queue), queue.qsize())
for kind, (before, first, second, after) in seen.items():
    print(f"{kind}: qsize() {before}, got {first} and {second}, qsize() {after}")
lost = (2, "Empty", 1, 0)
sys.exit(seen != {"Queue": (2, None, 1, 0), "SQLiteQueue": lost, "PriorityQueue": lost, "SQLiteAckQueue": lost})
PYTHON
