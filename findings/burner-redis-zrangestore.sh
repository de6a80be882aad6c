#!/usr/bin/env bash
# burner-redis 0.1.7: zrangestore() takes its bounds as scores, zrange() takes them as ranks.
#
# Does:    stores all of five members, and all but the last one, by zrangestore() with the bounds 0 -1 and 0 -2, into a
#          key that has a member; asks zrange() for the same.
# Expected: five and four members, as zrange() gives: Redis' ZRANGESTORE goes by rank unless BYSCORE is there, and this
#          one is "matching redis.asyncio.Redis.zrangestore() signature".
# Seen:    none stored, and the member of the target gone: no score is between 0 and -1.
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
    await db.zadd("due", {name: score for score, name in enumerate("abcde", start=1)})
    found = []
    for last in (-1, -2):
        await db.zadd("target", {"old": 1})
        stored = await db.zrangestore("target", "due", 0, last)
        found.append((len(await db.zrange("due", 0, last)), stored, await db.zcard("target")))
    return found


found = asyncio.run(seen())
for by_rank, stored, left in found:
    print(f"zrange() {by_rank}, zrangestore() {stored}, in the target {left}")
sys.exit(found != [(5, 0, 0), (4, 0, 0)])
PYTHON
