#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): message ids compare, but cannot be in a set or be the key of a dict.
#
# Does:    puts pulsar.MessageId(-1, 5, 7, -1) into a set, and one that was read from bytes.
# Expected: both work: ids are values with ==, <, and a serialised form; Java's are hashable.
# Seen:    TypeError "unhashable type" of both; their serialize() is the key to use.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import pulsar

made = pulsar.MessageId(-1, 5, 7, -1)
seen = []
for one in (made, pulsar.MessageId.deserialize(made.serialize())):
    try:
        seen.append(len({one}))
    except TypeError as error:
        seen.append(str(error))
print(f"made: {seen[0]}; read: {seen[1]}; equal ones are equal: {made == pulsar.MessageId(-1, 5, 7, -1)}")
sys.exit(any("unhashable type" not in str(one) for one in seen))
PYTHON
