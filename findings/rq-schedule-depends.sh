#!/usr/bin/env bash
# rq 3.0.0: a scheduled job runs at its time, whether or not the job that it depends on has run.
#
# Does:    enqueues a job, and others that depend on it: one at once, one by enqueue_at for a time that has come. The
#          scheduler looks once; no worker runs. A stand-in for Redis in the same process stores them.
# Expected: both deferred: depends_on names a job "that must complete before this job will be queued", by its docs.
# Seen:    the one enqueued at once is deferred; the scheduled one is queued, next to the job that it should wait for.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check rq==3.0.0 'fakeredis[lua]==2.41.0'
"$dir/venv/bin/python" -W ignore::DeprecationWarning - "$dir" <<'PYTHON'
import sys
from datetime import datetime, timezone

import fakeredis
from rq import Queue
from rq.scheduler import RQScheduler

redis = fakeredis.FakeStrictRedis()
queue = Queue("due", connection=redis)
first = queue.enqueue("time.sleep", 0, job_id="first")
now = queue.enqueue("time.sleep", 0, job_id="enqueued", depends_on=first)
timed = queue.enqueue_at(datetime(2026, 1, 1, tzinfo=timezone.utc), "time.sleep", 0, job_id="timed", depends_on=first)
scheduler = RQScheduler([queue], connection=redis)
scheduler.acquire_locks()
scheduler.enqueue_scheduled_jobs()
seen = {job.id: job.get_status().value for job in (first, now, timed)}
print(f"{seen}; in the queue: {queue.job_ids}")
sys.exit(seen != {"first": "queued", "enqueued": "deferred", "timed": "queued"} or queue.job_ids != ["first", "timed"])
PYTHON
