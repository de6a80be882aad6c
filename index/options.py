"""Options of an index, with units. All have a default that works."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True)
class IndexOptions:
    """Options of a Catalog. Raises ValueError if one is out of range.

    slice_width_ms: slice width of a new subscription, in milliseconds.
    slice_width_auto: if true, that is only the first width, and each persist may choose another (the daemon's
        default without a width).
    staging_budget_bytes: memory of staged entries over all subscriptions (24 B an entry); beyond it the
        largest spills.
    carry_ms: a persist keeps entries due within so many milliseconds of now in staging (and carries them over
        in one record), so that short delays never reach the slices.
    persist_age_ms: a subscription with a journal record older than so many milliseconds is persisted.
    journal_budget_bytes: size of all journals together; beyond it the largest is persisted.
    journal_records: records of all journals together, and 16 more for each subscription; beyond it the
        journal with most records is persisted, because opening reads each one, however small.
    block_entries: most entries of one packed block, 1 … 65,536.
    chunk_entries: staged entries are sorted in chunks of this many.
    merge_runs: a slice with so many overlapping runs of blocks is compacted, 2 or more.
    runs_max: as a slice nears so many runs, compactions get more and more of the time, and beyond it all;
        more than `merge_runs`.
    compaction_entries: a compaction adds slices until it has so many entries to merge.
    drop_entries: slices without held entries are dropped once they have so many entries, or with any other
        persist.
    prefetch_ms: a block is loaded when its first entry is due within so many milliseconds.
    pop_scan_entries: most entries one `pop_due` examines, live or not, and a block counts for 1,024 more; it
        bounds the pause, not the result.
    write_piece_bytes: size of the pieces in which blocks are written: a write holds the interpreter lock.
    quarantine_budget_bytes: bytes of damaged values set aside; beyond it the oldest are deleted.
    retry_ms: delay of the next persist after a failed one (disk full).
    """

    slice_width_ms: int = 3_600_000
    slice_width_auto: bool = False
    staging_budget_bytes: int = 32 * MIB
    carry_ms: int = 10_000
    persist_age_ms: int = 300_000
    journal_budget_bytes: int = 64 * MIB
    journal_records: int = 32_768
    block_entries: int = 65_536
    chunk_entries: int = 32_768
    merge_runs: int = 8
    runs_max: int = 32
    compaction_entries: int = 1 << 22
    drop_entries: int = 262_144
    prefetch_ms: int = 1_000
    pop_scan_entries: int = 262_144
    write_piece_bytes: int = MIB // 2
    quarantine_budget_bytes: int = 64 * MIB
    retry_ms: int = 1_000

    def __post_init__(self) -> None:
        for name, low, high in (
            ("slice_width_ms", 1, 1 << 53),
            ("staging_budget_bytes", 0, 1 << 53),
            ("carry_ms", 0, 1 << 53),
            ("persist_age_ms", 0, 1 << 53),
            ("journal_budget_bytes", 0, 1 << 53),
            ("journal_records", 0, 1 << 53),
            ("block_entries", 1, 65_536),
            ("chunk_entries", 1, 1 << 20),
            ("merge_runs", 2, 1 << 10),
            ("runs_max", self.merge_runs + 1, 1 << 12),
            ("compaction_entries", 1, 1 << 53),
            ("drop_entries", 1, 1 << 53),
            ("prefetch_ms", 0, 1 << 53),
            ("pop_scan_entries", 1, 1 << 53),
            ("write_piece_bytes", 1, 1 << 30),
            ("quarantine_budget_bytes", 0, 1 << 53),
            ("retry_ms", 0, 1 << 53),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"option {name} must be {low} … {high}, not {value}")
