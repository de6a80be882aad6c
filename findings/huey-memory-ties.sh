#!/usr/bin/env bash
# huey 3.5.4: in memory, tasks for one time come in a random order; on SQLite and files in the order of their calls.
#
# Does:    schedules 12 tasks for the same time with each storage, lets it take them over as a consumer does, and reads
#          the tasks that are due.
# Expected: 0 to 11 each time: the storage in memory is the stand-in for tests, and its queue keeps the order of equal
#          priorities.
# Seen:    another order in memory at each run: equal times are ordered by the pickled tasks, which begin with random
#          ids.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check huey==3.5.4
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import sys
from datetime import datetime

from huey import FileHuey, MemoryHuey, SqliteHuey


def due(huey):
    @huey.task()
    def send(number):
        pass

    for number in range(12):
        send.schedule(args=(number,), eta=datetime(2026, 1, 1))
    while (task := huey.dequeue()) is not None:
        huey.add_schedule(task)
    return [task.args[0] for task in huey.read_schedule(datetime(2026, 6, 1))]


on_disk = SqliteHuey("sqlite", filename=sys.argv[1] + "/queue.db"), FileHuey("file", path=sys.argv[1] + "/queue")
seen = {huey.name: due(huey) for huey in (MemoryHuey("memory"), *on_disk)}
for name, numbers in seen.items():
    print(f"{name}: {numbers}")
in_order = list(range(12))
memory = seen.pop("memory")
sys.exit(memory == in_order or sorted(memory) != in_order or seen != {"sqlite": in_order, "file": in_order})
PYTHON
