"""A hierarchical timing wheel with a file a slot, as delay services on Kafka keep one.

Four wheels: 60 slots of 1 s, 60 of 1 min, 24 of 1 h, and days. An entry is appended to a slot's file by its
remaining delay. When a coarse slot begins, its file's entries move to finer wheels; when a slot of 1 s is
over, its file is handed out; both are then deleted. The wheel ticks through all slots with a file, however
far the clock has jumped.

Durability: page cache, not synced (Kafka's default): kill -9 loses nothing; amid a slot it repeats a part.
Tick: 1 s. Favourable: one file at a time is in memory; a restart reads only the folder's list. Unfavourable:
an entry is written up to four times, and sparse ones cost a file each.
"""

from __future__ import annotations

import heapq
from pathlib import Path

import numpy as np

from bench.harness.workloads import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from bench.peers.base import Peer, PeerInfo
from bench.peers.records import Appenders, Table, dealt, entries_of, read_rows, table_of
from tidegate.index import Clock, Entries, Int64Array

WIDTHS_MS = (SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS)
REACH_MS = np.array((MINUTE_MS, HOUR_MS, DAY_MS), dtype=np.int64)
"""Remaining delays from which on the next coarser wheel is used."""
COLUMNS = 3
Slot = tuple[int, int, int]
"""(when it is looked at, minus the wheel's number, its number in the wheel): coarse wheels come first."""


def wheels_of(deliver_at_ms: Int64Array, now_ms: int) -> Int64Array:
    """The wheel for each entry: 0 for seconds … 3 for days. A slot that has begun is never chosen."""
    chosen = np.searchsorted(REACH_MS, deliver_at_ms - now_ms, side="right").astype(np.int64)
    widths = np.array(WIDTHS_MS, dtype=np.int64)
    # A coarse slot that has begun would not be read again.
    while True:
        begun = (chosen > 0) & (deliver_at_ms // widths[chosen] * widths[chosen] <= now_ms)
        if not begun.any():
            return chosen
        chosen[begun] -= 1


class WheelFilePeer(Peer):
    """A folder with a file for each slot that has entries."""

    info = PeerInfo(
        "wheel-file",
        "a hierarchical timing wheel with a file a slot: seconds, minutes, hours, days (Kafka services)",
        "in the page cache, not synced",
        tick_ms=SECOND_MS,
        slack_ms=SECOND_MS,
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._files = Appenders()
        self._prefix = f"{folder}/"
        self._records: dict[Slot, int] = {}
        self._heap: list[Slot] = []
        self._now_ms = clock.now_ms()
        self._firing: tuple[Slot, Table] | None = None
        for path in folder.glob("*.slot"):
            wheel, number = map(int, path.stem.split("-"))
            self._note(_slot(wheel, number), path.stat().st_size // (COLUMNS * 8))

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Append each to its slot's file."""
        self._place(table_of(entries), self._now_ms)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Tick until there are enough entries, or all slots until now have been read."""
        taken: list[Table] = []
        while limit:
            if self._firing is None and not self._next_firing(now_ms):
                break
            if self._firing is None:
                continue
            slot, rows = self._firing
            taken.append(rows[:limit])
            limit -= len(taken[-1])
            self._records[slot] -= len(taken[-1])
            rows = rows[len(taken[-1]) :]
            self._firing = (slot, rows) if len(rows) else None
            if not len(rows):
                self._remove(slot)
        return entries_of(taken)

    def count(self) -> int:
        """Over all slots."""
        return sum(self._records.values())

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _next_firing(self, now_ms: int) -> bool:
        """Read the next slot until now, of any wheel; returns false without one."""
        if not self._heap or self._heap[0][0] > now_ms:
            self._now_ms = max(self._now_ms, now_ms)
            return False
        slot = heapq.heappop(self._heap)
        at_ms, negative, _ = slot
        self._now_ms = max(self._now_ms, at_ms)
        rows = read_rows(self._path(slot), COLUMNS)
        if negative == 0 and len(rows):
            self._firing = (slot, rows)
            return True
        if len(rows):
            self._place(rows, at_ms)
        self._remove(slot)
        return True

    def _place(self, table: Table, now_ms: int) -> None:
        deliver_at_ms = np.maximum(table[:, 0], now_ms)
        for wheel, of_wheel in dealt(wheels_of(deliver_at_ms, now_ms)):
            rows = table[of_wheel]
            numbers = deliver_at_ms[of_wheel] // WIDTHS_MS[wheel]
            if wheel == 0:  # read when its second is over
                numbers = np.maximum(-(-deliver_at_ms[of_wheel] // SECOND_MS), now_ms // SECOND_MS + 1)
            for number, places in dealt(numbers):
                slot = _slot(wheel, number)
                self._files.append(self._path(slot), rows[places].tobytes())
                self._note(slot, len(places))

    def _note(self, slot: Slot, records: int) -> None:
        if slot not in self._records:
            self._records[slot] = 0
            heapq.heappush(self._heap, slot)
        self._records[slot] += records

    def _remove(self, slot: Slot) -> None:
        self._files.remove(self._path(slot))
        del self._records[slot]

    def _path(self, slot: Slot) -> str:
        return f"{self._prefix}{-slot[1]}-{slot[2]}.slot"


def _slot(wheel: int, number: int) -> Slot:
    return number * WIDTHS_MS[wheel], -wheel, number
