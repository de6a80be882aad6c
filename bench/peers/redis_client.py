"""Redis as a delay queue: a hash as message pool and 16 sorted sets by time, as described by Youzan and
others.

An entry's position is its id, assigned to a set by its number; the pool has its record. A batch is one
pipeline: HSET and 16 ZADD. A look is one of 16 ZRANGEBYSCORE and an HMGET for their results; after delivery
ZREM and HDEL go in one MULTI.

Durability: append-only file, synced every second: the server's kill -9 loses no answered write, a power
failure the last second. Tick: 1 s, as in those timers, though a look costs little. Favourable: packed bytes
in large commands (hiredis), a Unix socket. Unfavourable: everything is in the server's memory; each set is in
order, not the sixteen together.
"""

from __future__ import annotations

import time
from pathlib import Path

from redis import Redis

from bench.peers.base import Peer
from bench.peers.redis_records import POOL, SETS, flat, packed, set_name, unpacked
from bench.peers.redis_server import INFO, socket_path
from tidegate.index import Clock, Entries, Int64Array, sort_entries


class RedisPeer(Peer):
    """A client of the launcher's server."""

    info = INFO

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._redis = Redis(unix_socket_path=str(socket_path(folder)))
        self._taken: list[list[bytes]] = []

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """One pipeline."""
        ids, records = packed(entries)
        times = entries.deliver_at_ms.tolist()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.execute_command("HSET", POOL, *flat(ids, records))
        for number in range(min(SETS, len(ids))):
            pipeline.execute_command("ZADD", set_name(number), *flat(times[number::SETS], ids[number::SETS]))
        pipeline.execute()

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """A sixteenth of the limit from each set, then their records."""
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(SETS):
            pipeline.execute_command(
                "ZRANGEBYSCORE", set_name(number), "-inf", now_ms, "LIMIT", 0, max(1, limit // SETS)
            )
        self._taken = pipeline.execute()
        ids = [one for taken in self._taken for one in taken]
        if not ids:
            return Entries.empty()
        records: list[bytes | None] = self._redis.execute_command("HMGET", POOL, *ids)
        return sort_entries(unpacked([record for record in records if record is not None]))

    def done(self, popped: Entries) -> None:  # noqa: ARG002
        """Remove them from sets and pool, in one transaction."""
        pipeline = self._redis.pipeline(transaction=True)
        for number, ids in enumerate(self._taken):
            if ids:
                pipeline.execute_command("ZREM", set_name(number), *ids)
        pipeline.execute_command("HDEL", POOL, *(one for ids in self._taken for one in ids))
        pipeline.execute()

    def count(self) -> int:
        """Over all sets."""
        pipeline = self._redis.pipeline(transaction=False)
        for number in range(SETS):
            pipeline.zcard(set_name(number))
        sizes: list[int] = pipeline.execute()
        return sum(sizes)

    def settle(self) -> None:
        """Rewrite the append-only file."""
        while self._rewriting():
            time.sleep(0.05)  # Redis reports the end on request only
        self._redis.bgrewriteaof()
        while self._rewriting():
            time.sleep(0.05)  # as above

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _rewriting(self) -> bool:
        state = self._redis.info("persistence")
        return bool(state["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"])
