#!/usr/bin/env bash
# heapdict 1.0.1: giving a key a new priority while iterating raises, though no key comes or goes.
#
# Does:    sets heap[key] = 0 for each key of a loop over the heap, and the same with a dict.
# Expected: a new value of a key that is there is allowed in a loop, as a dict allows it.
# Seen:    RuntimeError after the first one: setting deletes the key and puts it in again.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check heapdict==1.0.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from heapdict import heapdict


def all_zero(mapping):
    try:
        for key in mapping:
            mapping[key] = 0
    except RuntimeError as error:
        return str(error)
    return "allowed"


seen = all_zero({"a": 3, "b": 1}), all_zero(heapdict({"a": 3, "b": 1}))
print(f"dict: {seen[0]}; heapdict: {seen[1]}")
sys.exit(seen[0] != "allowed" or "changed during iteration" not in seen[1])
PYTHON
