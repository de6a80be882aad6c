#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a required field that was never set is encoded as null, which its schema forbids.
#
# Does:    encodes a Record with x = Integer(required=True) without giving x.
# Expected: an error, as there is one for setting x to None.
# Seen:    {"x": null}, though the schema says "int" and not ["null", "int"]; `record.x = None` raises TypeError.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Integer, JsonSchema, Record


class Order(Record):
    x = Integer(required=True)


encoded = json.loads(JsonSchema(Order).encode(Order()))
declared = Order.schema()["fields"][0]["type"]
order = Order(x=1)
try:
    order.x = None
    refused = False
except TypeError:
    refused = True
print(f"declared {declared}, encoded {encoded}; setting None is refused: {refused}")
sys.exit((declared, encoded, refused) != ("int", {"x": None}, True))
PYTHON
