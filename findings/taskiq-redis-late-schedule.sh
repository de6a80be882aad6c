#!/usr/bin/env bash
# taskiq-redis 1.2.4: with a colon in the prefix, a schedule that is a minute late is never sent.
#
# Does:    adds schedules for five minutes ago and for now to a ListRedisScheduleSource with the prefix "schedule", and
#          to one with "app:schedule", and asks for the schedules, as a scheduler does that was down for a while. A
#          stand-in for Redis in the same process stores them.
# Expected: both of each: get_schedules() gives "all the time schedules that are in the past and haven't been sent yet".
# Seen:    both with "schedule", that of now alone with "app:schedule": the time is looked for behind the second colon.
#          A debug line of the log says so.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check taskiq-redis==1.2.4 taskiq==0.13.0 fakeredis==2.41.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import sys
from datetime import datetime, timedelta, timezone

from fakeredis import FakeAsyncRedis
from taskiq import ScheduledTask
from taskiq_redis import ListRedisScheduleSource
from taskiq_redis import list_schedule_source as module


async def seen():
    store = FakeAsyncRedis()
    module.Redis = lambda connection_pool: store
    minute = timedelta(minutes=1)
    found = {}
    for prefix in ("schedule", "app:schedule"):
        source = ListRedisScheduleSource("redis://127.0.0.1", prefix=prefix)
        now = datetime.now(timezone.utc)
        for name, time in (("late", now - 5 * minute), ("now", now), ("now", now + minute)):
            await source.add_schedule(ScheduledTask(task_name=name, labels={}, args=[], kwargs={}, time=time))
        found[prefix] = sorted({task.task_name for task in await source.get_schedules()})
    return found


found = asyncio.run(asyncio.wait_for(seen(), 30))
for prefix, names in found.items():
    print(f"{prefix}: {names}")
sys.exit(found != {"schedule": ["late", "now"], "app:schedule": ["now"]})
PYTHON
