"""Eighteen fixed delays with a queue each, after RocketMQ 4's delay levels (1 s … 2 h).

An entry is appended to its delay's queue, so each queue is in order of time without sorting, and a look
examines the heads alone. Other delays are rounded up to a level; above 2 h an entry goes through the 2 h
level repeatedly. The lateness is a figure (``rounded up by``).

A queue is a file every 262,144 records; the offsets handed out are written after every look (RocketMQ: every
10 s). Durability: page cache, not synced: kill -9 loses nothing. Tick: 100 ms. Favourable: nothing is faster
for delays that are levels. Unfavourable: every other delay comes late, or is rewritten every 2 h.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.harness.workloads import HOUR_MS, LEVELS_MS
from bench.peers.base import Peer, PeerInfo
from bench.peers.records import Appenders, Table, dealt, entries_of, read_rows
from tidegate.index import LITTLE_INT64, Clock, Entries, Int64Array

COLUMNS = 4
"""When it leaves the level, deliver_at_ms, ledger_id, entry_id."""
SEGMENT_RECORDS = 1 << 18
_LEVELS = np.array(LEVELS_MS, dtype=np.int64)


def levels_of(delay_ms: Int64Array) -> Int64Array:
    """The level of each delay: the shortest that is long enough, or the longest."""
    found = np.searchsorted(_LEVELS, delay_ms, side="left").astype(np.int64)
    return np.minimum(found, len(_LEVELS) - 1)


def rounded_up_ms(delay_ms: Int64Array) -> Int64Array:
    """The lateness of an entry by design: whole turns through the longest level, then one level."""
    longest = LEVELS_MS[-1]
    rest = delay_ms - np.maximum(0, -(-delay_ms // longest) - 1) * longest
    late_ms: Int64Array = _LEVELS[levels_of(rest)] - rest
    return late_ms


class Queue:
    """Records in order, in segment files, deleted when their last record is handed out."""

    def __init__(self, folder: Path, name: str, read: int) -> None:
        self._folder = folder
        self._name = name
        self._files = Appenders()
        self.read = read
        self._head: Table = np.empty((0, COLUMNS), dtype=LITTLE_INT64)
        segments = sorted(int(path.suffix[1:]) for path in folder.glob(f"{name}.*"))
        self.written = max(
            (one * SEGMENT_RECORDS + len(read_rows(self._path(one), COLUMNS)) for one in segments[-1:]),
            default=0,
        )
        self.written = max(self.written, read)

    def append(self, rows: Table) -> None:
        """Append behind all others."""
        while len(rows):
            segment, used = divmod(self.written, SEGMENT_RECORDS)
            part = rows[: SEGMENT_RECORDS - used]
            self._files.append(self._path(segment), part.tobytes())
            self.written += len(part)
            rows = rows[len(part) :]

    def pop(self, until_ms: int, limit: int) -> Table:
        """At most ``limit`` records from the head that leave the level by ``until_ms``."""
        if not len(self._head):
            self._load()
        count = min(int(np.searchsorted(self._head[:, 0], until_ms, side="right")), limit)
        rows, self._head = self._head[:count], self._head[count:]
        before = self.read // SEGMENT_RECORDS
        self.read += count
        if self.read // SEGMENT_RECORDS > before:
            self._files.remove(self._path(before))
        return rows

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _load(self) -> None:
        segment, skip = divmod(self.read, SEGMENT_RECORDS)
        if self.read < self.written:
            self._head = read_rows(self._path(segment), COLUMNS)[skip:]

    def _path(self, segment: int) -> str:
        return f"{self._folder}/{self._name}.{segment}"


class LevelsPeer(Peer):
    """The eighteen queues."""

    info = PeerInfo(
        "levels",
        "18 fixed delays with a queue file each, other delays rounded up, longer ones sent round again "
        "(RocketMQ 4)",
        "in the page cache, not synced",
        tick_ms=100,
        slack_ms=HOUR_MS,
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        offsets: list[int] = [0] * len(LEVELS_MS)
        self._offsets_file = os.open(folder / "offsets", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        found = np.frombuffer(os.read(self._offsets_file, 8 * len(offsets)), dtype=LITTLE_INT64).tolist()
        offsets = found if len(found) == len(offsets) else offsets
        self._queues = [Queue(folder, f"level-{at:02}", read) for at, read in enumerate(offsets)]
        self._last_ms = [0] * len(LEVELS_MS)
        self._rounded: list[npt.NDArray[np.int64]] = []

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:
        """Append each to the queue of its level."""
        self._rounded.append(rounded_up_ms(np.maximum(0, entries.deliver_at_ms - arrive_at_ms)))
        table = np.empty((len(entries), 3), dtype=LITTLE_INT64)
        table[:, 0], table[:, 1], table[:, 2] = entries.deliver_at_ms, entries.ledger_id, entries.entry_id
        self._append(table, arrive_at_ms)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out entries at the end of their level; send those with a remaining delay round again."""
        taken: list[Table] = []
        moved = True
        while moved and limit:
            moved = False
            for queue in self._queues:
                rows = queue.pop(now_ms, limit)
                if not len(rows):
                    continue
                moved = True
                ready = rows[:, 1] <= rows[:, 0]
                if not ready.all():
                    self._append(rows[~ready, 1:], rows[~ready, 0])
                    rows = rows[ready]
                taken.append(rows[:, 1:])
                limit -= len(rows)
        return entries_of(taken)

    def done(self, popped: Entries) -> None:  # noqa: ARG002
        """Write the offsets."""
        offsets = np.array([queue.read for queue in self._queues], dtype=LITTLE_INT64)
        os.pwrite(self._offsets_file, offsets.tobytes(), 0)

    def count(self) -> int:
        """Over all queues."""
        return sum(queue.written - queue.read for queue in self._queues)

    def remarks(self) -> dict[str, float]:
        """Their lateness by design."""
        late_ms = np.concatenate(self._rounded)
        return {
            "rounded up by, median (s)": float(np.median(late_ms)) / 1e3,
            "rounded up by, max (s)": float(late_ms.max()) / 1e3,
        }

    def close(self) -> None:
        """Close the files."""
        os.close(self._offsets_file)
        for queue in self._queues:
            queue.close()

    def _append(self, table: Table, from_ms: Int64Array) -> None:
        """Append to the levels of the delays from ``from_ms`` on. A queue stays in order of time."""
        for level, places in dealt(levels_of(np.maximum(0, table[:, 0] - from_ms))):
            rows = np.empty((len(places), COLUMNS), dtype=LITTLE_INT64)
            leave_ms = np.maximum.accumulate(from_ms[places] + LEVELS_MS[level])
            rows[:, 0], rows[:, 1:] = np.maximum(leave_ms, self._last_ms[level]), table[places]
            self._last_ms[level] = int(rows[-1, 0])
            self._queues[level].append(rows)
