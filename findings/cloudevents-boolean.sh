#!/usr/bin/env bash
# cloudevents 2.2.0: a boolean extension travels as True in binary mode, as true in structured mode.
#
# Does:    writes an event with the extension late=True in both modes of HTTP, and in the binary one of Kafka.
# Expected: true: the specification's Boolean is a 'case-sensitive "true" or "false"', in headers, too.
# Seen:    true in structured mode, True in both binary ones, which is a string to any other reader: str() makes it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cloudevents==2.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys

from cloudevents.core.bindings import http, kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

form = JSONFormat()
event = CloudEvent({"type": "due", "source": "/timer", "late": True})
structured = json.dumps(json.loads(http.to_structured(event, form).body)["late"])
in_http = http.to_binary(event, form).headers["ce-late"]
in_kafka = kafka.to_binary(event, form).headers["ce_late"].decode()
print(f"structured {structured}; binary: HTTP {in_http}, Kafka {in_kafka}")
sys.exit((structured, in_http, in_kafka) != ("true", "True", "True"))
PYTHON
