"""Bytes of damaged values, set aside in the store for inspection. Nothing reads them back.

Invariant: they take at most a budget of bytes; beyond it the oldest go first. Keys ascend with age, without a
clock.
"""

from __future__ import annotations

from tidegate.index.errors import DamagedDirectoryError
from tidegate.index.format import keys
from tidegate.index.store import Batch, Put, Store


def set_aside(store: Store, damaged: list[Put], budget_bytes: int) -> Batch:
    """The writes that set `damaged`, keys and values, aside, and delete the oldest past `budget_bytes`.

    Reads all damaged values: they are few, and this is rare. Raises StorageError.
    """
    batch = Batch()
    start, end = keys.kind_range(keys.QUARANTINE)
    try:
        sizes = [(key, len(key) + len(value)) for key, value in store.scan(start, end)]
    except DamagedDirectoryError:
        # The damaged values are damaged once more: not worth stopping for.
        batch.delete_range(start, end)
        sizes = []
    number = keys.parse_quarantine_key(sizes[-1][0]) + 1 if sizes else 1
    added = {keys.quarantine_key(number + at, key): value for at, (key, value) in enumerate(damaged)}
    sizes += [(key, len(key) + len(value)) for key, value in added.items()]
    over_bytes = sum(size_bytes for _, size_bytes in sizes) - budget_bytes
    for key, size_bytes in sizes:
        if over_bytes <= 0:
            break
        over_bytes -= size_bytes
        if added.pop(key, None) is None:
            batch.delete(key)
    for key, value in added.items():
        batch.put(key, value)
    return batch
