"""Figures of the index: plain numbers, for metrics and `tidegate status`."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.index.names import SubscriptionName


class SliceStats(NamedTuple):
    """One slice; `state` is `stored`, `active` (being popped) or `finished` (about to be dropped)."""

    start_ms: int
    width_ms: int
    entries: int
    state: str


class IndexStats(NamedTuple):
    """One subscription. Counts are entries unless the name says otherwise.

    slices_crowded: slices with enough runs to be compacted.
    next_due_ms: a lower bound, which a message cancelled or moved to later leaves behind until its old time;
        None if nothing is left to hand out.
    """

    name: SubscriptionName
    held: int
    in_flight: int
    acknowledged: int
    moved: int
    staged: int
    slices_in_memory: int
    slices_on_disk: int
    slices_crowded: int
    blocks: int
    blocks_quarantined: int
    blocks_absent: int
    memory_bytes: int
    disk_bytes: int
    journal_bytes: int
    next_due_ms: int | None
    slice_width_ms: int
    slice_width_auto: bool
    slice_width_reason: str
    slices: list[SliceStats]


class CatalogStats(NamedTuple):
    """All subscriptions of one data directory.

    compactions: slices compacted since the start.
    store_compactions_disabled: True once the store compacts nothing any more, and its files only grow.
    """

    subscriptions: int
    held: int
    in_flight: int
    acknowledged: int
    staged: int
    slices_in_memory: int
    slices_on_disk: int
    slices_crowded: int
    blocks: int
    blocks_quarantined: int
    blocks_absent: int
    corrupt_records: int
    lost_commits: int
    memory_bytes: int
    disk_bytes: int
    journal_bytes: int
    durable_token: int
    appended_token: int
    persists: int
    persist_failures: int
    compactions: int
    store_compactions_disabled: bool
    last_failure: str | None
