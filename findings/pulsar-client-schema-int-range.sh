#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): an Integer field, 32 bits in its schema, takes and sends any number.
#
# Does:    encodes 2^40 in an Integer() and 2^70 in a Long() with JsonSchema.
# Expected: an error: the schema says "int" and "long", 32 and 64 bits, which a reader in another language relies on.
# Seen:    both are encoded as they are. (A value of another type is refused at once.)
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Integer, JsonSchema, Long, Record


class Order(Record):
    number = Integer()
    total = Long()


types = [field["type"][1] for field in Order.schema()["fields"]]
encoded = json.loads(JsonSchema(Order).encode(Order(number=2**40, total=2**70)))
print(f"{types}: {encoded}")
sys.exit(types != ["int", "long"] or encoded != {"number": 2**40, "total": 2**70})
PYTHON
