"""Redis' form of an entry, for `bench.peers.redis_client`: an id of 16 bytes, a record of 24, a sorted set.

The id is the position, the record the position and the time, all big-endian.
"""

from __future__ import annotations

import numpy as np

from tidegate.index import Entries

SETS = 16
POOL = "pool"
ID_BYTES, RECORD_BYTES = 16, 24
_BIG = np.dtype(">i8")


def packed(entries: Entries) -> tuple[list[bytes], list[bytes]]:
    """(ids, records), one of each for an entry."""
    table = np.empty((len(entries), 3), dtype=_BIG)
    table[:, 0], table[:, 1], table[:, 2] = entries.ledger_id, entries.entry_id, entries.deliver_at_ms
    whole = table.tobytes()
    records = [whole[at : at + RECORD_BYTES] for at in range(0, len(whole), RECORD_BYTES)]
    return [record[:ID_BYTES] for record in records], records


def unpacked(records: list[bytes]) -> Entries:
    """The entries of records."""
    table = np.frombuffer(b"".join(records), dtype=_BIG).reshape(-1, 3).astype(np.int64)
    ledger_id, entry_id, deliver_at_ms = np.ascontiguousarray(table.T)
    return Entries(deliver_at_ms, ledger_id, entry_id)


def set_name(number: int) -> str:
    """The key of one of the sorted sets."""
    return f"due:{number}"


def flat(firsts: list[bytes] | list[int], seconds: list[bytes]) -> list[bytes | int]:
    """First, second, first, second, …: the arguments of HSET and ZADD."""
    together: list[bytes | int] = [b""] * (2 * len(seconds))
    together[::2], together[1::2] = firsts, seconds
    return together
