#!/usr/bin/env bash
# heapdict 1.0.1: a priority that cannot be compared raises, and stays in the heap all the same.
#
# Does:    into a heap with priorities 1, 2, 3 puts 'x', catches the TypeError, then pops.
# Expected: what was refused is not there, and pops go on.
# Seen:    the key is there (length 4), the next popitem raises TypeError again, and takes the entry with priority 1
#          away from the heap's order without returning it: later pops never give it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check heapdict==1.0.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from heapdict import heapdict

heap = heapdict({"a": 1, "b": 2, "c": 3})
try:
    heap["bad"] = "x"
    raised = False
except TypeError:
    raised = True
there = "bad" in heap, len(heap)
popped = []
for _ in range(4):
    try:
        popped.append(heap.popitem()[0])
    except TypeError:
        popped.append("TypeError")
print(f"raised {raised}, there {there}, popped {popped}")
sys.exit(not raised or there != (True, 4) or popped[0] != "TypeError" or "a" in popped)
PYTHON
