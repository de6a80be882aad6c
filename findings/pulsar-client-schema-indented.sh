#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): JsonSchema sends its messages indented, a field a line.
#
# Does:    encodes a Record of four short numbers and compares with compact JSON.
# Expected: about the size of compact JSON: this is what each message stores.
# Seen:    38 bytes instead of 25: "{\n \"a\": 1,\n \"b\": 2, …".
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Integer, JsonSchema, Record


class Point(Record):
    a = Integer()
    b = Integer()
    c = Integer()
    d = Integer()


encoded = JsonSchema(Point).encode(Point(a=1, b=2, c=3, d=4))
compact = json.dumps(json.loads(encoded), separators=(",", ":")).encode()
print(f"{len(encoded)} bytes, compact {len(compact)}: {encoded}")
sys.exit(encoded.count(b"\n") != 5 or len(encoded) < 1.4 * len(compact))
PYTHON
