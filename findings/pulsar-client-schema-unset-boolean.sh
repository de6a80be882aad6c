#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): a Boolean that was not set is false; numbers and strings that were not set are null.
#
# Does:    encodes a Record of an Integer, a String and a Boolean without any value.
# Expected: null for each: all three are nullable in the schema.
# Seen:    {"i": null, "s": null, "b": false}: a reader cannot tell false from not known.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from pulsar.schema import Boolean, Integer, JsonSchema, Record, String


class Answer(Record):
    i = Integer()
    s = String()
    b = Boolean()


nullable = [field["type"][0] for field in Answer.schema()["fields"]]
seen = json.loads(JsonSchema(Answer).encode(Answer()))
print(f"first of each type: {nullable}, encoded {seen}")
sys.exit(nullable != ["null"] * 3 or seen != {"i": None, "s": None, "b": False})
PYTHON
