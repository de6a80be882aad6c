"""The table and its rows in PostgreSQL's binary COPY format, for `bench.peers.postgresql_client`."""

from __future__ import annotations

import numpy as np

from tidegate.index import Entries

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"
ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("deliver_at_size", ">i4"), ("deliver_at", ">i8"),
        ("ledger_size", ">i4"), ("ledger", ">i8"),
        ("entry_size", ">i4"), ("entry", ">i8"),
    ]
)  # fmt: skip
"""A row of three bigints in PostgreSQL's binary COPY format."""
TABLE = "CREATE TABLE IF NOT EXISTS delayed (deliver_at bigint, ledger bigint, entry bigint)"
INDEX = "CREATE INDEX IF NOT EXISTS delayed_deliver_at ON delayed (deliver_at)"
COPY_IN = "COPY delayed (deliver_at, ledger, entry) FROM STDIN (FORMAT binary)"


def encoded(entries: Entries) -> bytes:
    """The entries as a binary COPY."""
    rows = np.empty(len(entries), dtype=ROW)
    rows["fields"] = 3
    for name, column in (
        ("deliver_at", entries.deliver_at_ms),
        ("ledger", entries.ledger_id),
        ("entry", entries.entry_id),
    ):
        rows[f"{name}_size"] = 8
        rows[name] = column
    return HEADER + rows.tobytes() + TRAILER


def decoded(content: bytes) -> Entries:
    """The entries of a binary COPY."""
    rows = np.frombuffer(content[len(HEADER) : len(content) - len(TRAILER)], dtype=ROW)
    return Entries(*(rows[name].astype(np.int64) for name in ("deliver_at", "ledger", "entry")))


def copy_out(now_ms: int, limit: int) -> str:
    """The statement that deletes and returns due rows. COPY takes no parameters."""
    return (
        "COPY (DELETE FROM delayed WHERE ctid = ANY (ARRAY ("  # noqa: S608 two integers
        f"SELECT ctid FROM delayed WHERE deliver_at <= {int(now_ms)} ORDER BY deliver_at LIMIT {int(limit)} "
        "FOR UPDATE SKIP LOCKED)) RETURNING deliver_at, ledger, entry) TO STDOUT (FORMAT binary)"
    )
