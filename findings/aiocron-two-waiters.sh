#!/usr/bin/env bash
# aiocron 2.1: of two tasks that wait for the next() time of one crontab, the first one waits for ever.
#
# Does:    waits twice at once for the next second of one crontab, for at most four seconds, and twice for that of two
#          crontabs with the same times.
# Expected: both wake within two seconds: next() gives a future of its own to each, and cron's times are for all.
# Seen:    with one crontab the second task wakes and the first never does: the crontab remembers one future alone. With
#          two crontabs both wake.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check aiocron==2.1 cronsim==2.8
"$dir/venv/bin/python" - "$dir" <<'PYTHON'
import asyncio
import sys

from aiocron import crontab


async def woke(cron):
    try:
        await asyncio.wait_for(cron.next(), 4)
    except TimeoutError:
        return False
    return True


async def seen():
    one, *two = (crontab("* * * * * *", start=False) for _ in range(3))
    return await asyncio.gather(woke(one), woke(one)), await asyncio.gather(*map(woke, two))


shared, own = asyncio.run(seen())
print(f"woken, with one crontab: {shared}; with one each: {own}")
sys.exit(shared != [False, True] or own != [True, True])
PYTHON
