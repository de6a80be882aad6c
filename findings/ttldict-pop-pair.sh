#!/usr/bin/env bash
# ttldict 0.3.0: pop() and popitem() give a pair of the expiry time and the value, where [] and get() give the value.
#
# Does:    stores the value "v" and reads it in each way; pops an entry that has expired.
# Expected: "v" from all four, as from the OrderedDict that it extends; the default for the expired one.
# Seen:    (seconds since 1970, "v") from pop() and popitem(), and pop() gives the expired one, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check ttldict==0.3.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from ttldict import TTLOrderedDict


def entries():
    return TTLOrderedDict(60, k="v")


seen = [entries()["k"], entries().get("k"), entries().pop("k"), entries().popitem()[1]]
print(seen)
old = entries()
old.set_ttl("k", 0.01)
time.sleep(0.05)
expired = old.pop("k", "default")
print(f"expired: {expired}")
pairs = [*seen[2:], expired]
sys.exit(seen[:2] != ["v", "v"] or [(type(pair), pair[1]) for pair in pairs] != [(tuple, "v")] * 3)
PYTHON
