#!/usr/bin/env bash
# persist-queue 1.1.0: task_done() of a PriorityQueue deletes items that get() never gave out.
#
# Does:    puts three items into a PriorityQueue that does not commit by itself, the most urgent one second; gets all
#          that come, and calls task_done() as such a queue needs it.
# Expected: three items, as with auto_commit=True and as in the example of its README; the third one is still stored if
#          it does not come.
# Seen:    get() gives two and raises Empty. The first one put is less urgent and never comes, qsize() goes on counting
#          it, and task_done() deletes it from the file: the queue remembers one id and takes all below it as done.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check persist-queue==1.1.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from persistqueue import Empty, PriorityQueue


def taken(auto_commit):
    queue = PriorityQueue(f"{sys.argv[1]}/{auto_commit}", auto_commit=auto_commit)
    for item, priority in (("later", 5), ("now", 1), ("soon", 3)):
        queue.put(item, priority=priority)
    got = []
    try:
        while True:
            got.append(queue.get(block=False))
    except Empty:
        queue.task_done()
    return got, queue.qsize(), len(queue.queue())


seen = {auto_commit: taken(auto_commit) for auto_commit in (True, False)}
for auto_commit, (got, size, stored) in seen.items():
    print(f"auto_commit={auto_commit}: got {got}; qsize() {size}, {stored} stored")
sys.exit(seen != {True: (["now", "soon", "later"], 0, 0), False: (["now", "soon"], 1, 0)})
PYTHON
