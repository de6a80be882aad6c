#!/usr/bin/env bash
# heapdict 1.0.1: popitem of an empty heap raises IndexError, where a mapping raises KeyError.
#
# Does:    pops from an empty dict and from an empty heapdict, both instances of MutableMapping.
# Expected: KeyError of both: code that drains a mapping catches that.
# Seen:    KeyError of the dict, IndexError of the heapdict.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check heapdict==1.0.1
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from collections.abc import MutableMapping

from heapdict import heapdict


def drained(mapping):
    assert isinstance(mapping, MutableMapping)
    try:
        mapping.popitem()
    except LookupError as error:
        return type(error).__name__
    return "nothing"


seen = drained({}), drained(heapdict())
print(f"dict {seen[0]}, heapdict {seen[1]}")
sys.exit(seen != ("KeyError", "IndexError"))
PYTHON
