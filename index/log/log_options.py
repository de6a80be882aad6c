"""What can be chosen about index logs."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.index.options import MIB


@dataclass(frozen=True)
class LogOptions:
    """Sizes and times of index logs.

    interval_ms: what is written is put into the log so much later at most, together with what came since.
    crowd_logs: where more logs than this are written to, each is so much less often, down to half as often.
    tail_bytes, tail_snapshots: a log whose records after the snapshot are longer than this, and than so many
        times the snapshot, is begun anew.
    journal_records, journal_bytes: a subscription with more in its journal is persisted: who opens the log
        replays them, one by one.
    queue_bytes: what waits of one subscription, at most; past it the log is begun anew when that is possible.
    record_bytes: writes are put together into records of about this size.
    inline_bytes: with more than this in blocks, a log has them in ledgers of their own, and names them. With
        less, reading them costs a new owner hardly anything, and a second ledger would.
    blocks_ledger_bytes: a ledger of blocks that is longer is not gone on with.
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
        """How long one of so many logs waits for more to write. An append costs the broker and the bookies
        the same for a byte as for thousands: 128 logs cost no more than at twice the interval."""
        return self.interval_ms * min(2.0, max(1.0, written_logs / self.crowd_logs))
