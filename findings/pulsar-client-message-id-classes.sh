#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a MessageId made by hand cannot be compared with one that was read back from bytes.
#
# Does:    makes pulsar.MessageId(-1, 5, 7, -1), serialises it, deserialises it, compares; and with MessageId.earliest.
# Expected: equal, and greater than the earliest.
# Seen:    AttributeError "no attribute '_msg_id'", and TypeError "incompatible function arguments": deserialize() and
#          earliest give another class, _pulsar.MessageId, which compares with itself only.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

import pulsar

made = pulsar.MessageId(-1, 5, 7, -1)
read, again = (pulsar.MessageId.deserialize(made.serialize()) for _ in range(2))
seen = []
for compare in (lambda: made == read, lambda: pulsar.MessageId.earliest < made, lambda: read == again):
    try:
        seen.append(compare())
    except (AttributeError, TypeError) as error:
        seen.append(type(error).__name__)
print(f"made == read: {seen[0]}; earliest < made: {seen[1]}; read == read again: {seen[2]}")
sys.exit(seen != ["AttributeError", "TypeError", True])
PYTHON
