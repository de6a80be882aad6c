#!/usr/bin/env bash
# ttldict 0.3.0: entries with the key 0, "" or () never expire.
#
# Does:    stores five keys for 0.05 s each, waits 0.1 s, and asks for all of them.
# Expected: none is left, whatever its key.
# Seen:    0, "" and () are: the check for expiry answers with the key, and such a key counts as false.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check ttldict==0.3.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from ttldict import TTLOrderedDict

entries = TTLOrderedDict(60)
for key in (0, 1, "", "a", ()):
    entries[key] = "value"
    entries.set_ttl(key, 0.05)
time.sleep(0.1)
seen = [key for key, _ in entries.items()]
print(f"left: {seen}, len() {len(entries)}")
sys.exit(seen != [0, "", ()] or len(entries) != 3)
PYTHON
