#!/usr/bin/env bash
# tempora 5.13.0: parse_timedelta() drops a minus sign: "-1:30:00" are 90 minutes, "-1 day" is a day.
#
# Does:    parses both, and what str() makes of timedelta(hours=1) and of timedelta(hours=-1).
# Expected: negative durations, or a ValueError as for other text that it does not know: "Expect ValueError for other
#          invalid inputs". It reads Python's own form, as 1:00:00 shows.
# Seen:    positive ones; minus one hour, "-1 day, 23:00:00", comes back as 47 hours.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check tempora==5.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import timedelta

from tempora import parse_timedelta

hour = timedelta(hours=1)
texts = {"-1:30:00": 1.5 * hour, "-1 day": 24 * hour, str(hour): hour, str(-hour): 47 * hour}
seen = {text: parse_timedelta(text) for text in texts}
for text, duration in seen.items():
    print(f"{text}: {duration / hour} hours")
sys.exit(seen != texts)
PYTHON
