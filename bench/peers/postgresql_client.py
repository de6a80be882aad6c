"""PostgreSQL as a delay queue: a table with an index on the time, and a scan for due rows.

A batch is one COPY in binary form and a commit. A look deletes the earliest due rows (FOR UPDATE SKIP LOCKED,
for several scanners) and returns them in binary form; the transaction is committed after delivery.

Durability: each commit synced: nothing is lost. Tick: 1 s, as usual for job queues in databases. Favourable:
COPY both ways, a Unix socket, no other column or index. Unfavourable: a row costs a header, an index entry,
its share of the log, and a vacuum later.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from bench.peers.base import Peer
from bench.peers.postgresql_rows import COPY_IN, INDEX, TABLE, copy_out, decoded, encoded
from bench.peers.postgresql_server import INFO, PORT, USER, sockets_of
from tidegate.index import Clock, Entries, Int64Array, sort_entries


class PostgresqlPeer(Peer):
    """A client of the launcher's server."""

    info = INFO

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._connection = psycopg.connect(
            host=str(sockets_of(folder)), port=PORT, user=USER, dbname="postgres"
        )
        with self._connection.cursor() as cursor:
            cursor.execute(TABLE)
            cursor.execute(INDEX)
            # Without statistics yet, a scan of the whole table would look cheap.
            cursor.execute("SET SESSION enable_seqscan = off")
            cursor.execute("SET SESSION enable_bitmapscan = off")
        self._connection.commit()

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """COPY and commit."""
        with self._connection.cursor() as cursor, cursor.copy(COPY_IN) as copy:
            copy.write(encoded(entries))
        self._connection.commit()

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Delete and return the earliest."""
        statement = copy_out(now_ms, limit).encode()
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            content = b"".join(bytes(part) for part in copy)
        popped = sort_entries(decoded(content))
        if not len(popped):
            self._connection.commit()
        return popped

    def done(self, popped: Entries) -> None:  # noqa: ARG002
        """Commit the deletion."""
        self._connection.commit()

    def count(self) -> int:
        """Count the rows."""
        with self._connection.cursor() as cursor:
            row = cursor.execute("SELECT count(*) FROM delayed").fetchone()
        self._connection.commit()
        return int(row[0]) if row is not None else 0

    def settle(self) -> None:
        """Vacuum, and a checkpoint."""
        self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE delayed")
            cursor.execute("CHECKPOINT")
        self._connection.autocommit = False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
