#!/usr/bin/env bash
# pycron 3.3.0: sat-sun, 6-7 and 6,7 are Saturday alone; fri-mon is Friday and Saturday.
#
# Does:    asks is_now() for each day of a week, with five ways to write a weekend and one to write a long one.
# Expected: Saturday and Sunday for all five: names and ranges are supported, 7 is Sunday in crontab(5), a range that
#          ends before it begins is taken; failing that, an error.
# Seen:    6,0 has both days; all others lose Sunday without a word, and fri-mon loses Monday, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pycron==3.3.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import datetime, timedelta

import pycron

monday = datetime(2026, 11, 30)
week = [monday + timedelta(days=day) for day in range(7)]
ways = ("6,0", "6,7", "6-7", "sat-sun", "6-0", "fri-mon")
seen = {way: [f"{day:%a}" for day in week if pycron.is_now(f"0 0 * * {way}", day)] for way in ways}
for way, days in seen.items():
    print(f"{way}: {' '.join(days)}")
expected = {way: ["Sat"] for way in ways} | {"6,0": ["Sat", "Sun"], "fri-mon": ["Fri", "Sat"]}
sys.exit(seen != expected)
PYTHON
