#!/usr/bin/env bash
# cloudevents 2.2.0: two events made from one dictionary of attributes have the same id.
#
# Does:    makes two CloudEvents with different data from one dictionary of type and source, and one from a copy.
# Expected: three ids: "if not provided", id defaults to a UUID4, and by the specification source and id are unique for
#          each event, so that a consumer may drop the second of two with the same.
# Seen:    one id for the first two: CloudEvent writes id and time into the dictionary that it is given, and keeps it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cloudevents==2.2.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from cloudevents.core.v1.event import CloudEvent

attributes = {"type": "due", "source": "/timer"}
copied = CloudEvent(dict(attributes), {"number": 3})
events = [CloudEvent(attributes, {"number": number}) for number in (1, 2)]
ids = {event.get_id() for event in events}
print(f"{len(events)} events: {len(ids)} id; the dictionary now has {sorted(attributes)}")
sys.exit(ids != {attributes.get("id")} or copied.get_id() in ids)
PYTHON
