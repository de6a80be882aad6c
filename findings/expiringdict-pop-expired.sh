#!/usr/bin/env bash
# expiringdict 1.2.2: pop() of an expired key gives the expired value, not the default.
#
# Does:    stores a value for 0.05 s, waits 0.1 s, and pops it with a default; the same with get().
# Expected: the default: the docstring of pop() says that it returns it "if expired or does not exist".
# Seen:    pop() gives the value; get() gives the default.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check expiringdict==1.2.2
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from expiringdict import ExpiringDict

seen = {}
for method in ("get", "pop"):
    cache = ExpiringDict(max_len=10, max_age_seconds=0.05)
    cache["key"] = "expired"
    time.sleep(0.1)
    seen[method] = getattr(cache, method)("key", "default")
print(seen)
sys.exit(seen != {"get": "default", "pop": "expired"})
PYTHON
