#!/usr/bin/env bash
# burner-redis 0.1.7: messages that xautoclaim() reports as deleted stay pending, and come again with each call.
#
# Does:    reads three messages of a stream for a consumer, deletes one of them, claims all three twice and acknowledges
#          those that came.
# Expected: the deleted id once, and no pending message at the end: since Redis 7 XAUTOCLAIM removes the ids of deleted
#          messages from the pending ones as it reports them, and this answer has Redis 7's third part, the deleted ids.
# Seen:    the deleted id twice, and one pending message for ever: a worker that waits for none waits in vain.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check burner-redis==0.1.7
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import sys

from burner_redis import BurnerRedis


async def seen():
    db = BurnerRedis()
    await db.xgroup_create("due", "workers", id="0", mkstream=True)
    for number in (1, 2, 3):
        await db.xadd("due", {"number": str(number)}, id=f"{number}-0")
    await db.xreadgroup("workers", "first", {"due": ">"}, count=3)
    await db.xdel("due", "2-0")
    answers = [await db.xautoclaim("due", "workers", "second", min_idle_time=0) for _ in range(2)]
    claimed = [name.decode() for name, _ in answers[0][1]]
    await db.xack("due", "workers", *claimed)
    pending = await db.xpending("due", "workers")
    return claimed, [[name.decode() for name in deleted] for _, _, deleted in answers], pending["pending"]


claimed, deleted, pending = asyncio.run(seen())
print(f"claimed {claimed}, deleted {deleted}; pending at the end: {pending}")
sys.exit(claimed != ["1-0", "3-0"] or deleted != [["2-0"], ["2-0"]] or pending != 1)
PYTHON
