#!/usr/bin/env bash
# rq 3.0.0: a job is scheduled up to a second before the time that enqueue_at is given.
#
# Does:    schedules a job for 0.999999 s past midnight, and asks for the jobs that are due at midnight sharp. A
#          stand-in for Redis in the same process stores them.
# Expected: no job is due yet: enqueue_at "schedules a job to be enqueued at specified time".
# Seen:    the job is due, and get_scheduled_time() says midnight: fractions of a second are cut off, not rounded up.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rq==3.0.0 fakeredis==2.41.0
"$dir/venv/bin/python" -W ignore::DeprecationWarning - "$dir" <<'PYTHON'
import sys
from datetime import datetime, timezone

import fakeredis
from rq import Queue
from rq.registry import ScheduledJobRegistry

midnight = datetime(2030, 1, 1, tzinfo=timezone.utc)
asked = midnight.replace(microsecond=999_999)
queue = Queue("due", connection=fakeredis.FakeStrictRedis())
job = queue.enqueue_at(asked, "time.sleep", 0)
registry = ScheduledJobRegistry(queue=queue)
due = registry.get_jobs_to_schedule(timestamp=int(midnight.timestamp()))
scheduled = registry.get_scheduled_time(job)
print(f"asked for {asked:%H:%M:%S.%f}, scheduled for {scheduled:%H:%M:%S.%f}, due at 00:00:00: {due == [job.id]}")
sys.exit(scheduled != midnight or due != [job.id])
PYTHON
