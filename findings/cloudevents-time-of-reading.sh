#!/usr/bin/env bash
# cloudevents 2.2.0: an event without a time has the time at which it is read.
#
# Does:    reads one event without a time twice, in structured mode and in binary mode.
# Expected: no time: the attribute is optional, the "timestamp of when the occurrence happened", get_time() may give
#          None, and the sender knows of none.
# Seen:    a time of now, another one at each reading, and it goes out again with an event that is passed on: the
#          default of the constructor holds for events that others made, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cloudevents==2.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys
import time
from datetime import datetime, timezone

from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured, to_structured
from cloudevents.core.formats.json import JSONFormat

form = JSONFormat()
attributes = {"specversion": "1.0", "id": "1", "type": "due", "source": "/timer"}
structured = HTTPMessage(
    headers={"content-type": "application/cloudevents+json"}, body=json.dumps(attributes).encode()
)
binary = HTTPMessage(headers={f"ce-{name}": value for name, value in attributes.items()}, body=b"")
started = datetime.now(timezone.utc)
events = []
for read, message in ((from_structured, structured), (from_binary, binary)):
    for _ in range(2):
        events.append(read(message, form))
        time.sleep(0.01)
times = [event.get_time() for event in events]
ended = datetime.now(timezone.utc)
passed_on = "time" in json.loads(to_structured(events[0], form).body)
ordered = started <= times[0] < times[1] < times[2] < times[3] <= ended
different = len(set(times))
print(f"time of one event, read four times: {different} times, each of its reading: {ordered}; sent on: {passed_on}")
sys.exit(not ordered or not passed_on)
PYTHON
