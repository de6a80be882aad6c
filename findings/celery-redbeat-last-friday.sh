#!/usr/bin/env bash
# celery-redbeat 2.4.2: after storage, the last Friday of each month is every Friday.
#
# Does:    sends an rrule with byweekday=FR(-1) through redbeat's JSON encoder and decoder, as an entry goes through
#          Redis, and lists the first four days of both.
# Expected: the same days: the README has rrule schedules with the arguments of dateutil's rrule.
# Seen:    30 January, 27 February, … before, 2, 9, 16, 23 January after: the encoder keeps the weekday, not its -1.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check celery-redbeat==2.4.2 celery==5.7.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import json
import sys
from datetime import datetime, timezone

from dateutil.rrule import FR
from redbeat.decoder import RedBeatJSONDecoder, RedBeatJSONEncoder
from redbeat.schedules import rrule

made = rrule("MONTHLY", dtstart=datetime(2026, 1, 1, 9, tzinfo=timezone.utc), byweekday=FR(-1), count=4)
stored = json.loads(json.dumps(made, cls=RedBeatJSONEncoder), cls=RedBeatJSONDecoder)
seen = {}
for name, schedule in (("made", made), ("stored", stored)):
    seen[name] = [f"{day:%m-%d}" for day in schedule.rrule]
    print(f"{name}: {seen[name]}")
made_days, stored_days = ["01-30", "02-27", "03-27", "04-24"], ["01-02", "01-09", "01-16", "01-23"]
sys.exit(seen != {"made": made_days, "stored": stored_days})
PYTHON
