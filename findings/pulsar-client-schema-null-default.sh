#!/usr/bin/env bash
# pulsar-client 3.13.0: the null in a nullable field with a default is read as the default.
#
# Does:    decodes a null in the field "retries", which is Integer(default=5), from JSON and from Avro, as other clients
#          send it; sets the field of a Record to None and encodes that.
# Expected: None: the field is nullable, as its schema says, ["null", "int"]. A default stands in for a missing field,
#          and this one is there.
# Seen:    5 everywhere: no Record with such a field can hold, read or send a null.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check 'pulsar-client[avro]==3.13.0'
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import io
import json
import sys

import fastavro
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String


class Due(Record):
    retries = Integer(default=5)
    name = String()


null = {"retries": None, "name": "a"}
avro = io.BytesIO()
fastavro.schemaless_writer(avro, fastavro.parse_schema(Due.schema()), null)
record = Due(name="a")
record.retries = None
seen = {
    "JSON": JsonSchema(Due).decode(json.dumps(null).encode()).retries,
    "Avro": AvroSchema(Due).decode(avro.getvalue()).retries,
    "sent": json.loads(JsonSchema(Due).encode(record))["retries"],
}
types = next(field["type"] for field in Due.schema()["fields"] if field["name"] == "retries")
print(f"null read from JSON: {seen['JSON']}, from Avro: {seen['Avro']}; None as sent: {seen['sent']}; type {types}")
sys.exit(seen != {"JSON": 5, "Avro": 5, "sent": 5} or types != ["null", "int"])
PYTHON
