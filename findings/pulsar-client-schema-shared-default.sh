#!/usr/bin/env bash
# pulsar-client 3.13.0 (Python): all records share one list as the default of a field.
#
# Does:    appends to the list of one Record whose field is Array(String(), default=[]), then makes another record.
# Expected: the other one's list is empty.
# Seen:    it has what was appended to the first.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pulsar-client==3.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys

from pulsar.schema import Array, Record, String


class Order(Record):
    tags = Array(String(), default=[])


Order().tags.append("urgent")
seen = Order().tags
print(f"tags of a new record: {seen}")
sys.exit(seen != ["urgent"])
PYTHON
