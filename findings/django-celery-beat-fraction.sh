#!/usr/bin/env bash
# django-celery-beat 2.9.0: a task for every 1.5 s runs every second, one for every half second all the time.
#
# Does:    stores entries of a beat schedule for every 1.5 s and 0.5 s, as DatabaseScheduler stores beat_schedule, and
#          reads them from the database, which is SQLite in memory.
# Expected: 1.5 s and 0.5 s, which Celery's own scheduler keeps: a schedule may be any timedelta. Else an error: an
#          interval is a whole number of seconds or of microseconds, of which 1,500,000 would do.
# Seen:    1 s and 0 s, without an error: fractions are cut off.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check django-celery-beat==2.9.0 Django==5.2.19 celery==5.7.0
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import timedelta

import django
from celery import Celery
from celery.schedules import schedule
from django.conf import settings
from django.core.management import call_command

apps = ["django.contrib.contenttypes", "django_celery_beat"]
databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
field = "django.db.models.AutoField"
settings.configure(INSTALLED_APPS=apps, DATABASES=databases, USE_TZ=True, DEFAULT_AUTO_FIELD=field)
django.setup()
call_command("migrate", verbosity=0)

from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry

app = Celery("beat", set_as_current=False)
seen = {}
for every in (timedelta(seconds=1.5), timedelta(seconds=0.5)):
    ModelEntry.from_entry(str(every), app=app, schedule=schedule(every, app=app), task="due")
    seen[every] = PeriodicTask.objects.get(name=str(every)).schedule.run_every
    print(f"asked for every {every.total_seconds()} s, stored every {seen[every].total_seconds()} s")
sys.exit(list(seen.values()) != [timedelta(seconds=1), timedelta(0)])
PYTHON
