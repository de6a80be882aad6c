#!/usr/bin/env bash
# django-celery-beat 2.9.0: the options expires and countdown of a beat schedule are lost.
#
# Does:    stores an entry with the options priority, expires and countdown, as DatabaseScheduler stores beat_schedule,
#          and reads from SQLite in memory which options go with the task; asks Celery's own ScheduleEntry for the same.
# Expected: all three: Celery's options are "any argument supported by apply_async() – exchange, routing_key, expires,
#          and so on", and a stored task has a field for its expiry.
# Seen:    the priority alone, without a warning: after a stop of the workers, tasks that should have expired run late.
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

from celery.beat import ScheduleEntry
from django_celery_beat.models import PeriodicTask
from django_celery_beat.schedulers import ModelEntry

app = Celery("beat", set_as_current=False)
asked = {"priority": 3, "expires": 10, "countdown": 5}
every = schedule(timedelta(seconds=60), app=app)
ModelEntry.from_entry("due", app=app, schedule=every, task="due", options=asked)
stored = ModelEntry(PeriodicTask.objects.get(name="due"), app=app).options
own = ScheduleEntry(name="due", app=app, schedule=every, task="due", options=asked).options
seen = {name: [key for key in asked if key in options] for name, options in (("own", own), ("stored", stored))}
print(f"options of Celery's entry: {seen['own']}; of the stored one: {seen['stored']}")
sys.exit(seen != {"own": list(asked), "stored": ["priority"]})
PYTHON
