#!/usr/bin/env bash
# expiringdict 1.2.2: setting an expired key of a full dictionary throws out a second one that is alive.
#
# Does:    fills a dictionary of two keys, lets the first one expire, and sets it anew.
# Expected: both keys: the expired entry made room, and two are allowed.
# Seen:    one key. The check whether the key is there deletes the expired entry, and then the oldest one left goes as
#          well.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check expiringdict==1.2.2
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from expiringdict import ExpiringDict

cache = ExpiringDict(max_len=2, max_age_seconds=1)
cache["a"] = 1
time.sleep(0.7)
cache["b"] = 2
time.sleep(0.5)
before = cache.get("b")
cache["a"] = 3
after = dict(cache.items())
print(f"b was {before}; after setting a: {after}")
sys.exit((before, after) != (2, {"a": 3}))
PYTHON
