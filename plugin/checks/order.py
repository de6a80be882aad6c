"""Order within a key: the message that was ready earlier must be received earlier."""

from __future__ import annotations

import numpy as np

from tidegate.plugin.checks.deliveries import Bools, Int64, Ints


def out_of_order(key: Ints, due: Int64, sent: Int64, received: Int64) -> Bools:
    """A mask of the messages received after a later one of their key.

    A message is ready when both due and sent; of those ready at the same time the one sent first comes first.
    Each column has one element a message: its first receipt. Receipts at the same instant have no order. A
    straggler counts once, however many overtook it. O(n log n).
    """
    late = np.zeros(len(key), np.bool_)
    if not len(key):
        return late
    rank = _ranks(np.maximum(due, sent), sent)
    order = np.lexsort((rank, received, key))
    keys, ranks, times = key[order], rank[order], received[order]
    # The highest rank of a key so far: the ranks of each key lie above those of the keys before.
    new_key = np.concatenate(([True], keys[1:] != keys[:-1]))
    lifted = ranks + np.cumsum(new_key) * np.int64(len(key))
    highest = np.maximum.accumulate(lifted)
    # Compare with receipts at an earlier instant, not with those at the same one.
    new_time = new_key | np.concatenate(([True], times[1:] != times[:-1]))
    begin = np.maximum.accumulate(np.where(new_time, np.arange(len(key)), 0))
    before = np.where(begin > 0, highest[begin - 1], -1)
    late[order] = ~new_key[begin] & (lifted < before)
    return late


def _ranks(ready: Int64, sent: Int64) -> Int64:
    """The rank of each message in due order; equal messages share a rank."""
    order = np.lexsort((sent, ready))
    changed = (ready[order][1:] != ready[order][:-1]) | (sent[order][1:] != sent[order][:-1])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.concatenate(([0], np.cumsum(changed)))
    return rank
