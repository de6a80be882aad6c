#!/usr/bin/env bash
# taskiq 0.13.0: labels of a schedule lose against those of its task, and are overwritten where they were written down.
#
# Does:    gives a task the label queue=slow, and one of its schedules the labels queue=fast and night=yes; asks
#          LabelScheduleSource for the schedules, and looks at the dictionary of the schedule.
# Expected: queue=fast: its docs have them as "additional labels to use when invoking the task", and the narrower one
#          counts, as it does with kicker().with_labels().
# Seen:    queue=slow, night=yes; the dictionary says queue=slow now, too.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check taskiq==0.13.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import sys

from taskiq import InMemoryBroker
from taskiq.schedule_sources import LabelScheduleSource

broker = InMemoryBroker()
at_night = {"cron": "0 3 * * *", "labels": {"queue": "fast", "night": "yes"}}


@broker.task(queue="slow", schedule=[at_night])
async def clean():
    pass


async def scheduled():
    source = LabelScheduleSource(broker)
    await source.startup()
    return [schedule.labels for schedule in await source.get_schedules()]


seen = asyncio.run(scheduled())
kicked = clean.kicker().with_labels(queue="fast").labels["queue"]
print(f"scheduled with {seen}; the dictionary: {at_night['labels']}; kicked with queue {kicked}")
both = {"queue": "slow", "night": "yes"}
sys.exit(seen != [both] or at_night["labels"] != both or kicked != "fast")
PYTHON
