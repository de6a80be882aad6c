#!/usr/bin/env bash
# cron-converter 2.0.2: an hourly schedule pauses for two hours when clocks go back, though it starts with a time zone.
#
# Does:    asks for the next five times of "30 * * * *" in Europe/Berlin on the night of 25 October 2026, when 2:30
#          comes twice.
# Expected: an hour between any two: its README says to start with an aware time for changes of the clock to work.
#          Debian's cron runs such a job in both hours, and cronsim, its simulation, lists both.
# Seen:    2:30+02:00, then 3:30+01:00: 2:30+01:00 is left out.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check cron-converter==2.0.2 cronsim==2.8 tzdata==2026.6
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import datetime, timezone
from itertools import islice
from zoneinfo import ZoneInfo

from cron_converter import Cron
from cronsim import CronSim

start = datetime(2026, 10, 25, tzinfo=ZoneInfo("Europe/Berlin"))
both = {"cronsim": CronSim("30 * * * *", start), "cron-converter": Cron("30 * * * *").schedule(start)}
seen = {}
for name, times in both.items():
    five = list(islice(times, 5))
    utc = [at.astimezone(timezone.utc) for at in five]
    seen[name] = [(later - sooner).seconds // 3600 for sooner, later in zip(utc, utc[1:], strict=False)]
    print(f"{name}: {', '.join(f'{at:%H:%M%z}' for at in five)}; hours between: {seen[name]}")
sys.exit(seen != {"cronsim": [1, 1, 1, 1], "cron-converter": [1, 1, 2, 1]})
PYTHON
