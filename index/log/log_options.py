"""Options of index logs."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.index.options import MIB


@dataclass(frozen=True)
class LogOptions:
    """Sizes and times of index logs.

    interval_ms: longest delay from a write to its append; all writes since go with it.
    crowd_logs: with more logs than this, each gets appends less often, down to half as often.
    tail_bytes, tail_snapshots: a log whose records after the snapshot exceed this size, and this many times
        the snapshot, begins anew.
    journal_records, journal_bytes: a longer journal causes a persist, because the log's opener replays
        records one by one.
    queue_bytes: most bytes that wait for one subscription; beyond it the log begins anew when possible.
    record_bytes: writes are joined into records of about this size.
    inline_bytes: a log with more bytes of blocks has them in ledgers of their own. With fewer, a new owner
        reads them at hardly any cost, and a second ledger would cost more.
    blocks_ledger_bytes: a longer ledger of blocks gets no more appends.
    """

    interval_ms: int = 25
    crowd_logs: int = 64
    tail_bytes: int = 2 * MIB
    journal_records: int = 2_000
    journal_bytes: int = 4 * MIB
    queue_bytes: int = 16 * MIB
    record_bytes: int = MIB
    inline_bytes: int = 4 * MIB
    blocks_ledger_bytes: int = 64 * MIB
    tail_snapshots: int = 2

    def pause_ms(self, written_logs: int) -> float:
        """Pause between appends of one of so many logs.

        An append costs broker and bookies the same for one byte as for thousands: 128 logs at twice the
        interval cost no more than 64.
        """
        return self.interval_ms * min(2.0, max(1.0, written_logs / self.crowd_logs))
