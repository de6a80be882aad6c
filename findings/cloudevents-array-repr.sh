#!/usr/bin/env bash
# cloudevents 2.2.0: in binary mode a JSON array becomes the text of a Python list.
#
# Does:    reads an event in structured mode whose data is the array [true, null, "a"], and writes it in binary mode,
#          beside one with the same array in an object.
# Expected: the JSON of the data as the body, as the content type application/json says; structured mode writes it.
# Seen:    [True, None, 'a'], which no JSON parser reads, and which the library itself reads as a string; the object is
#          right. write_data() knows of dictionaries, and takes str() of the rest.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cloudevents==2.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat

form = JSONFormat()
seen = {}
for name, data in (("array", [True, None, "a"]), ("object", {"array": [True, None, "a"]})):
    sent = {"specversion": "1.0", "id": "1", "type": "due", "source": "/timer", "data": data}
    sent["datacontenttype"] = "application/json"
    headers = {"content-type": "application/cloudevents+json"}
    event = from_structured(HTTPMessage(headers=headers, body=json.dumps(sent).encode()), form)
    again = json.loads(to_structured(event, form).body)["data"]
    binary = to_binary(event, form)
    seen[name] = again == data, binary.body, from_binary(binary, form).get_data() == data
for name, (structured, body, read) in seen.items():
    print(f"{name}: structured mode keeps it: {structured}, binary {body.decode()}, read back the same: {read}")
right = b'{"array": [true, null, "a"]}'
sys.exit(seen != {"array": (True, b"[True, None, 'a']", False), "object": (True, right, True)})
PYTHON
