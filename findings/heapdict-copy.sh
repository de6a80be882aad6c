#!/usr/bin/env bash
# heapdict 1.0.1: popping from copy.copy(heap) empties the original.
#
# Does:    copies a heap of two and pops one entry of the copy.
# Expected: the original keeps both, as a dict does; deepcopy does it so.
# Seen:    the original has one left: copy.copy shares the list and the dict. There is no copy method.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check heapdict==1.0.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import copy
import sys

from heapdict import heapdict

heap = heapdict({"a": 1, "b": 2})
shallow = copy.copy(heap)
shallow.popitem()
left = len(heap)
deep = copy.deepcopy(heap)
deep.popitem()
print(f"left after a pop of the copy: {left}; after one of the deep copy: {len(heap)}; copy method: "
      f"{hasattr(heap, 'copy')}")
sys.exit((left, len(heap), hasattr(heap, "copy")) != (1, 1, False))
PYTHON
