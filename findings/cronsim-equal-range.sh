#!/usr/bin/env bash
# cronsim 2.8: 10-10/20 as minutes is 10, 30 and 50, while 10-10 is 10 and 10-11/20 is 10.
#
# Does:    lists the minutes of an hour for four ranges, two of them with a step.
# Expected: 10 for all but 10-11: a step takes every n-th of the range, and a range ends at its end. The README calls
#          any difference from Debian's cron a bug; crontab(5) has steps as skips "through the range".
# Seen:    10-10/20 goes on until 59: one number left over is read like 10/20, which has no end.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cronsim==2.8
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import datetime, timedelta

from cronsim import CronSim


def minutes(field):
    start = datetime(2026, 11, 30)
    found = CronSim(f"{field} * * * *", start - timedelta(minutes=1))
    listed = []
    while (at := next(found)) < start + timedelta(hours=1):
        listed.append(at.minute)
    return listed


seen = {field: minutes(field) for field in ("10-10", "10-11", "10-11/20", "10-10/20")}
for field, listed in seen.items():
    print(f"{field}: {listed}")
sys.exit(seen != {"10-10": [10], "10-11": [10, 11], "10-11/20": [10], "10-10/20": [10, 30, 50]})
PYTHON
