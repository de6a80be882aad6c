#!/usr/bin/env bash
# APScheduler 3.11.3: a paused job runs again once it gets another trigger, though nobody resumed it.
#
# Does:    pauses a job, then changes its trigger with reschedule(), in one scheduler, and its name with modify(), in
#          another; waits 0.5 s.
# Expected: no run in either: pause_job() has a job "not to be executed until it is explicitly resumed", by its docs.
#          Its maintainers call the behaviour normal in an issue; the docs do not.
# Seen:    after reschedule() the job runs every 0.1 s; after modify() it stays paused.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check apscheduler==3.11.3
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
import time

from apscheduler.schedulers.background import BackgroundScheduler


def runs_after(change):
    runs = []
    scheduler = BackgroundScheduler(timezone="UTC")
    scheduler.start()
    job = scheduler.add_job(lambda: runs.append(1), "interval", hours=1)
    job.pause()
    change(job)
    paused = job.next_run_time is None
    time.sleep(0.5)
    scheduler.shutdown()
    return paused, len(runs) > 0


seen = {
    "modify()": runs_after(lambda job: job.modify(name="another")),
    "reschedule()": runs_after(lambda job: job.reschedule("interval", seconds=0.1)),
}
for change, (paused, ran) in seen.items():
    print(f"after {change}: paused {paused}, ran {ran}")
sys.exit(seen != {"modify()": (True, False), "reschedule()": (False, True)})
PYTHON
