#!/usr/bin/env bash
# persist-queue 1.1.0: a UniqueQ keeps two equal lists if one has the same string twice, the other two equal strings.
#
# Does:    puts [a, a] and [a, b], where a and b are equal strings, and the same dictionary in two orders within a list.
# Expected: one of each: its README has the second of two equal items as "Duplicate ignored". Dictionaries are put in
#          order for that.
# Seen:    four items. Pickled bytes are compared: they refer back to an object that comes twice, and only the outermost
#          dictionary is put in order.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check persist-queue==1.1.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from persistqueue import UniqueQ

a = "topic"
b = "".join(["to", "pic"])
pairs = [([a, a], [a, b]), ([{"x": 1, "y": 2}], [{"y": 2, "x": 1}]), ({"x": 1, "y": 2}, {"y": 2, "x": 1})]
seen = []
for number, (first, second) in enumerate(pairs):
    queue = UniqueQ(f"{sys.argv[1]}/{number}")
    queue.put(first)
    queue.put(second)
    seen.append((first == second, queue.qsize()))
    print(f"{first} and {second}: equal {first == second}, kept {queue.qsize()}")
sys.exit(seen != [(True, 2), (True, 2), (True, 1)])
PYTHON
