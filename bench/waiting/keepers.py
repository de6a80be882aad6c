"""The three that answer questions about their waiting entries: Tidegate's daemon over its socket, Redis,
PostgreSQL.

Redis and PostgreSQL keep entries as in `peers`. Each answers the same: counts by bucket (the tide), and a
page of entries in due order. Favourable to Redis: all its answers come in one pipeline. Unfavourable: a page
needs the first of all sixteen sets, so it reads sixteen pages.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness.broker_client import BrokerClient
from bench.harness.errors import BenchError
from bench.harness.index_driver import UNCOMMITTED_MAX
from bench.harness.trackers import OURS
from bench.peers.launch import PythonLauncher
from bench.peers.postgresql_server import PORT, USER, PostgresqlLauncher, sockets_of
from bench.peers.redis_records import POOL, SETS, flat, packed, set_name
from bench.peers.redis_server import RedisLauncher, socket_path
from tidegate.index import Entries, SubscriptionName, SystemClock
from tidegate.plugin.local.daemon import Daemon
from tidegate.plugin.wire.client import ask_socket

REDIS, POSTGRESQL = "redis", "postgresql"
NAME = SubscriptionName("persistent://public/default/orders", "billing")
BUCKETS = 60
ANSWER_S = 120.0


class Keeper(ABC):
    """Keeps entries in ``folder``, from ``start`` to ``stop``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def start(self) -> None:
        """Start its server, empty."""

    @abstractmethod
    def add(self, entries: Entries) -> None:
        """Take a batch."""

    @abstractmethod
    def filled(self) -> None:
        """Called after the last batch: everything is where it stays."""

    @abstractmethod
    def tide(self, now_ms: int, span_ms: int) -> int:
        """Count the entries due within the span by bucket; returns their sum."""

    @abstractmethod
    def page(self, from_ms: int, limit: int) -> int:
        """Read a page of entries due from then on, in due order; returns its length."""

    @abstractmethod
    def stop(self) -> None:
        """End its server."""


class Tidegate(Keeper):
    """A real daemon, asked over its socket with what the commands ask."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._daemon = Daemon(folder / "tidegate")
        self._closing = contextlib.ExitStack()

    def start(self) -> None:
        """Start it, and open a stream as a broker does."""
        self._daemon.start()
        self._client = self._closing.enter_context(BrokerClient(self._daemon.socket_path, UNCOMMITTED_MAX))
        self._stream = self._client.open(NAME, credit=0)
        self._client.until(lambda: self._stream.answered, "HELD")

    def add(self, entries: Entries) -> None:
        """One ADD."""
        self._client.add(self._stream, entries)

    def filled(self) -> None:
        """Wait until all is durable. The broker goes, so that nothing but the index answers."""
        self._client.all_durable()
        self._closing.close()

    def tide(self, now_ms: int, span_ms: int) -> int:  # noqa: ARG002 its own clock counts
        """The query ``tide``."""
        step_ms = span_ms // BUCKETS
        answer = self._ask({"what": "tide", "step_ms": step_ms, "span_ms": span_ms})
        return sum(int(one["entries"]) for one in answer["buckets"])

    def page(self, from_ms: int, limit: int) -> int:
        """The query ``waiting``."""
        return len(self._ask({"what": "waiting", "from_ms": from_ms, "limit": limit})["entries"])

    def stop(self) -> None:
        """Kill it."""
        self._daemon.kill()

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        name = {"topic": NAME.topic, "subscription": NAME.subscription}
        return ask_socket(self._daemon.socket_path, request | name, ANSWER_S)


class _Server(Keeper):
    """A keeper with a server of the bench ``peers``."""

    def __init__(self, folder: Path, launcher: PythonLauncher) -> None:
        super().__init__(folder)
        missing = launcher.missing()
        if missing is not None:
            raise BenchError(missing)
        self._launcher = launcher
        self._data = folder / "data"

    def start(self) -> None:
        """Start the server, and connect."""
        self.folder.chmod(0o711)  # the server's user passes through
        self._data.mkdir()
        self._launcher.start_server(self._data)
        self.connect()

    @abstractmethod
    def connect(self) -> None:
        """Connect to the server."""

    def stop(self) -> None:
        """Kill the server."""
        self._launcher.kill_server()


class Redis(_Server):
    """A hash and sixteen sorted sets."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, RedisLauncher())

    def connect(self) -> None:
        """Two clients: the peer's for adding, one of our own for questions."""
        import redis  # noqa: PLC0415 of the extra `bench`

        from bench.peers.redis_client import RedisPeer  # noqa: PLC0415

        self._peer = RedisPeer(self._data, SystemClock())
        self.client = redis.Redis(unix_socket_path=str(socket_path(self._data)))

    def add(self, entries: Entries) -> None:
        """As the peer does."""
        self._peer.add(entries, entries.deliver_at_ms)

    def filled(self) -> None:
        """Nothing is left to write."""

    def tide(self, now_ms: int, span_ms: int) -> int:
        """ZCOUNT of each bucket in each set, in one pipeline."""
        step_ms = span_ms // BUCKETS
        pipeline = self.client.pipeline(transaction=False)
        for start in range(now_ms, now_ms + BUCKETS * step_ms, step_ms):
            for number in range(SETS):
                pipeline.zcount(set_name(number), start, f"({start + step_ms}")
        return sum(pipeline.execute())

    def page(self, from_ms: int, limit: int) -> int:
        """The first of each set, merged."""
        pipeline = self.client.pipeline(transaction=False)
        for number in range(SETS):
            pipeline.zrange(
                set_name(number), from_ms, "+inf", byscore=True, offset=0, num=limit, withscores=True
            )
        found = [(score, one) for part in pipeline.execute() for one, score in part]
        found.sort()
        return len(found[:limit])

    def cancel(self, entries: Entries) -> int:
        """ZREM and HDEL of a batch, in one transaction; returns the number that was there."""
        ids, _ = packed(entries)
        pipeline = self.client.pipeline(transaction=True)
        for number in range(SETS):
            pipeline.execute_command("ZREM", set_name(number), *ids)
        pipeline.execute_command("HDEL", POOL, *ids)
        return int(pipeline.execute()[-1])

    def reschedule(self, entries: Entries, to_ms: int) -> int:
        """ZADD of what a set has, and HSET of the records, in one transaction; returns the number moved."""
        ids, records = packed(Entries(np.full(len(entries), to_ms), entries.ledger_id, entries.entry_id))
        pipeline = self.client.pipeline(transaction=True)
        pipeline.execute_command("HSET", POOL, *flat(ids, records))
        for number in range(SETS):
            pipeline.execute_command("ZADD", set_name(number), "XX", "CH", *flat([to_ms] * len(ids), ids))
        return sum(pipeline.execute()[1:])


class Postgresql(_Server):
    """A table with an index on the time, and one on the position for cancelling."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PostgresqlLauncher())

    def connect(self) -> None:
        """Two clients, as for Redis."""
        import psycopg  # noqa: PLC0415 of the extra `bench`

        from bench.peers.postgresql_client import PostgresqlPeer  # noqa: PLC0415

        self._peer = PostgresqlPeer(self._data, SystemClock())
        self.client = psycopg.connect(
            host=str(sockets_of(self._data)), port=PORT, user=USER, dbname="postgres"
        )

    def add(self, entries: Entries) -> None:
        """As the peer does."""
        self._peer.add(entries, entries.deliver_at_ms)

    def filled(self) -> None:
        """Add the index on positions, and vacuum."""
        with self.client.cursor() as cursor:
            cursor.execute("CREATE INDEX delayed_position ON delayed (ledger, entry)")
        self.client.commit()
        self._peer.settle()

    def tide(self, now_ms: int, span_ms: int) -> int:
        """One GROUP BY."""
        step_ms = span_ms // BUCKETS
        with self.client.cursor() as cursor:
            cursor.execute(
                "SELECT (deliver_at - %s) / %s, count(*) FROM delayed "
                "WHERE deliver_at >= %s AND deliver_at < %s GROUP BY 1",
                (now_ms, step_ms, now_ms, now_ms + BUCKETS * step_ms),
            )
            counts = sum(int(row[1]) for row in cursor.fetchall())
        self.client.commit()
        return counts

    def page(self, from_ms: int, limit: int) -> int:
        """One SELECT in the order of the index."""
        with self.client.cursor() as cursor:
            cursor.execute(
                "SELECT deliver_at, ledger, entry FROM delayed WHERE deliver_at >= %s "
                "ORDER BY deliver_at LIMIT %s",
                (from_ms, limit),
            )
            found = len(cursor.fetchall())
        self.client.commit()
        return found

    def cancel(self, entries: Entries) -> int:
        """DELETE … RETURNING of a batch, and a commit; returns the number that was there."""
        with self.client.cursor() as cursor:
            cursor.execute(
                "DELETE FROM delayed USING unnest(%s::bigint[], %s::bigint[]) AS one (ledger, entry) "
                "WHERE delayed.ledger = one.ledger AND delayed.entry = one.entry RETURNING delayed.entry",
                (entries.ledger_id.tolist(), entries.entry_id.tolist()),
            )
            gone = len(cursor.fetchall())
        self.client.commit()
        return gone

    def reschedule(self, entries: Entries, to_ms: int) -> int:
        """UPDATE of a batch, and a commit; returns the number that was there."""
        with self.client.cursor() as cursor:
            cursor.execute(
                "UPDATE delayed SET deliver_at = %s "
                "FROM unnest(%s::bigint[], %s::bigint[]) AS one (ledger, entry) "
                "WHERE delayed.ledger = one.ledger AND delayed.entry = one.entry",
                (to_ms, entries.ledger_id.tolist(), entries.entry_id.tolist()),
            )
            moved = int(cursor.rowcount)
        self.client.commit()
        return moved


KEEPERS: dict[str, type[Keeper]] = {OURS: Tidegate, REDIS: Redis, POSTGRESQL: Postgresql}
