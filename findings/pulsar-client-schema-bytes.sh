#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a Bytes field in a JsonSchema takes UTF-8 only.
#
# Does:    encodes b"ab" and the two bytes 00 ff in a field Bytes().
# Expected: both, in some form (Java's JSON schema writes base64).
# Seen:    b"ab" becomes the string "ab"; the other raises UnicodeDecodeError.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Bytes, JsonSchema, Record


class Blob(Record):
    data = Bytes()


schema = JsonSchema(Blob)
seen = [json.loads(schema.encode(Blob(data=b"ab")))["data"]]
try:
    seen.append(schema.encode(Blob(data=bytes([0, 255]))))
except UnicodeDecodeError as error:
    seen.append(type(error).__name__)
print(f"ASCII: {seen[0]!r}, other bytes: {seen[1]}")
sys.exit(seen != ["ab", "UnicodeDecodeError"])
PYTHON
