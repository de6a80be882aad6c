#!/usr/bin/env bash
# litequeue 0.9: qsize() of a queue with maxsize=2 is 4, and 2 while empty() is True.
#
# Does:    puts two messages, pops both and does not mark them as done, which its docs want before prune() only; puts
#          two more.
# Expected: sizes that agree, as in queue.Queue: empty() if and only if qsize() is 0, and never more than maxsize. The
#          README names the differences to that class, and this is none of them.
# Seen:    qsize() 2 and empty() after the pops; qsize() 4 and full() after two more: qsize() counts popped messages
#          until done(), the other two do not.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check litequeue==0.9
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from litequeue import LiteQueue

queue = LiteQueue(memory=True, maxsize=2)
seen = []
for step in (queue.put, queue.pop, queue.put):
    for _ in range(2):
        step() if step == queue.pop else step("message")
    seen.append((queue.qsize(), queue.empty(), queue.full()))
for step, (size, empty, full) in zip(("two put", "both popped", "two more put"), seen, strict=True):
    print(f"{step}: qsize() {size}, empty() {empty}, full() {full}")
sys.exit(seen != [(2, False, True), (2, True, False), (4, False, True)])
PYTHON
