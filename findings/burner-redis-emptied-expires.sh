#!/usr/bin/env bash
# burner-redis 0.1.7: an emptied sorted set, hash or set keeps its time to live, and the next members die by it.
#
# Does:    adds a member to a key of each kind, gives the key a second to live, removes the member and adds another one;
#          looks again when the second is over.
# Expected: a new key without an end, which keeps its member, as in Redis: a key without members exists no more. The
#          README calls it a "Redis-compatible database", for job queues.
# Seen:    the empty key still exists with its time to live, and the new member is gone after that second. Lists do as
#          in Redis.
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
    kinds = {
        "sorted set": (lambda key, one: db.zadd(key, {one: 1}), db.zrem),
        "hash": (lambda key, one: db.hset(key, one, "1"), db.hdel),
        "set": (db.sadd, db.srem),
        "list": (db.rpush, lambda key, _: db.lpop(key)),
    }
    emptied = {}
    for kind, (add, remove) in kinds.items():
        await add(kind, "old")
        await db.expire(kind, 1)
        await remove(kind, "old")
        emptied[kind] = await db.exists(kind)
        await add(kind, "new")
    await asyncio.sleep(1.5)
    return {kind: (emptied[kind], await db.exists(kind)) for kind in kinds}


found = asyncio.run(seen())
for kind, (empty, later) in found.items():
    print(f"{kind}: exists while empty: {empty}; the new member after a second: {later}")
sys.exit(found != {"sorted set": (1, 0), "hash": (1, 0), "set": (1, 0), "list": (0, 1)})
PYTHON
