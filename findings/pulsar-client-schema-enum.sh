#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): JsonSchema writes an enum as its Python value, which is no symbol of its own schema.
#
# Does:    encodes a field CustomEnum(Colour) with RED = 1.
# Expected: "RED": the schema that is sent to the broker says {"type": "enum", "symbols": ["RED", "GREEN"]}.
# Seen:    1. Read by Python itself, both 1 and "RED" give Colour.RED.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys
from enum import Enum

from pulsar.schema import CustomEnum, JsonSchema, Record


class Colour(Enum):
    RED = 1
    GREEN = 2


class Paint(Record):
    colour = CustomEnum(Colour)


symbols = Paint.schema()["fields"][0]["type"][1]["symbols"]
schema = JsonSchema(Paint)
encoded = json.loads(schema.encode(Paint(colour=Colour.RED)))["colour"]
read = schema.decode(b'{"colour": 1}').colour, schema.decode(b'{"colour": "RED"}').colour
print(f"symbols {symbols}, encoded {encoded!r}, read {read}")
sys.exit((symbols, encoded, read) != (["RED", "GREEN"], 1, (Colour.RED, Colour.RED)))
PYTHON
