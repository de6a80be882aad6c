"""A wheel of two levels, after QMQ: an append-only file an hour on disk, and 500 ms slots in memory.

An entry is appended to its hour's file. The current hour and the next are in memory, in slots of 500 ms; a
slot is handed out when it is over. A dispatch log beside the hour's file has the places of records handed
out; when an hour is over and all handed out, both files are deleted. A restart reads the hour's file again,
without the records in the dispatch log.

Durability: page cache, not synced (QMQ flushes in the background): kill -9 loses nothing, a power failure the
last moments. Tick: 500 ms. Favourable: an add is hardly more than appending, sorting is per slot, a year
needs no more memory than two hours. Unfavourable: all of an hour is in memory; a slot is in order of arrival;
an hour costs two files, however few its entries. It does not tick through empty slots, in its favour when the
clock jumps.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.harness.workloads import HOUR_MS
from bench.peers.base import Peer, PeerInfo
from bench.peers.records import Appenders, Table, dealt, entries_of, read_rows, table_of
from tidegate.index import LITTLE_INT64, Clock, Entries, Int64Array

TICK_MS = 500
COLUMNS = 3


@dataclass
class Hour:
    """An hour: the records in its file, and how many are still to be handed out."""

    number: int
    records: int = 0
    waiting: int = 0
    loaded: bool = False


class Wheel:
    """Slots in memory: rows (deliver_at_ms, ledger_id, entry_id, hour, place in its file).

    The rows from an hour's file are in one array, distributed by slot; later ones are slot by slot.
    """

    def __init__(self) -> None:
        self._loaded: list[tuple[Int64Array, Table]] = []
        self._later: dict[int, list[Table]] = {}
        self._heap: list[int] = []

    def load(self, rows: Table) -> None:
        """The rows of an hour, behind those of earlier hours."""
        slots = slots_of(rows[:, 0])
        order = np.argsort(slots, kind="stable")
        self._loaded.append((slots[order], rows[order]))

    def put(self, rows: Table) -> None:
        """Rows of hours that are loaded."""
        for slot, places in dealt(slots_of(rows[:, 0])):
            if slot in self._later:
                self._later[slot].append(rows[places])
            else:
                self._later[slot] = [rows[places]]
                heapq.heappush(self._heap, slot)

    def due(self, last: int) -> bool:
        """True if a slot up to ``last`` has rows."""
        return any(len(slots) and slots[0] <= last for slots, _ in self._loaded) or (
            bool(self._heap) and self._heap[0] <= last
        )

    def pop(self, last: int, limit: int) -> list[Table]:
        """At most ``limit`` rows of the slots up to ``last``, in order of slot; they leave the wheel."""
        taken: list[Table] = []
        while limit:
            later = bool(self._heap) and self._heap[0] <= last
            rows = self._take_loaded(self._heap[0] if later else last, limit)
            if rows is None and later:
                rows = self._take_later(limit)
            if rows is None:
                break
            taken.append(rows)
            limit -= len(rows)
        return taken

    def _take_loaded(self, last: int, limit: int) -> Table | None:
        self._loaded = [(slots, rows) for slots, rows in self._loaded if len(slots)]
        for at, (slots, rows) in enumerate(self._loaded):
            count = min(limit, int(np.searchsorted(slots, last, side="right")))
            if count:
                self._loaded[at] = (slots[count:], rows[count:])
                return rows[:count]
        return None

    def _take_later(self, limit: int) -> Table:
        parts = self._later[self._heap[0]]
        rows = parts.pop(0)
        if len(rows) > limit:
            parts.insert(0, rows[limit:])
        elif not parts:
            del self._later[heapq.heappop(self._heap)]
        return rows[:limit]


def slots_of(deliver_at_ms: Int64Array) -> Int64Array:
    """The slot whose 500 ms contain the time less 1 ms: it is over at the time or later."""
    return (deliver_at_ms - 1) // TICK_MS


class QmqPeer(Peer):
    """Hour files, two of them in memory."""

    info = PeerInfo(
        "qmq",
        "an append-only file an hour, the current hour and the next in a wheel of 500 ms in memory, "
        "a dispatch log (as QMQ)",
        "in the page cache, not synced",
        tick_ms=TICK_MS,
        slack_ms=TICK_MS,
    )

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder, clock)
        self._files = Appenders()
        self._wheel = Wheel()
        self._taken: list[Table] = []
        self._hours: dict[int, Hour] = {}
        self._unloaded: list[int] = []
        self._current = clock.now_ms() // HOUR_MS
        for path in folder.glob("*.schedule"):
            hour = self._hour(int(path.stem))
            hour.records = path.stat().st_size // (COLUMNS * LITTLE_INT64.itemsize)
            hour.waiting = hour.records - len(self._dispatched(hour.number))
            if hour.waiting <= 0:
                hour.loaded = True
                self._forget(hour)

    def add(self, entries: Entries, arrive_at_ms: Int64Array) -> None:  # noqa: ARG002
        """Append to the hours' files; entries of an hour in memory go to their slots as well."""
        table = table_of(entries)
        hours = np.maximum(entries.deliver_at_ms // HOUR_MS, self._current)
        for number, places in dealt(hours):
            hour = self._hour(number)
            rows = table[places]
            self._files.append(self._schedule(number), rows.tobytes())
            if hour.loaded:
                self._wheel.put(_wide(rows, number, np.arange(hour.records, hour.records + len(rows))))
            hour.records += len(rows)
            hour.waiting += len(rows)

    def pop_due(self, now_ms: int, limit: int) -> Entries:
        """Hand out the slots that are over."""
        if now_ms // HOUR_MS > self._current:
            self._current = now_ms // HOUR_MS
            for over in [hour for hour in self._hours.values() if hour.number < self._current]:
                if not over.waiting:
                    self._forget(over)
        last = now_ms // TICK_MS - 1
        taken: list[Table] = []
        wanted = limit
        self._load_until(self._current + 1, last)
        while wanted and (parts := self._wheel.pop(last, wanted)):
            taken += parts
            wanted -= sum(map(len, parts))
            self._load_until(self._current + 1, last)
        self._taken = taken
        return entries_of(taken)

    def done(self, popped: Entries) -> None:  # noqa: ARG002
        """Record it in the dispatch logs."""
        rows = np.concatenate(self._taken)
        self._taken = []
        for number, places in dealt(rows[:, 3]):
            hour = self._hours[number]
            self._files.append(self._dispatch(number), rows[places, 4].tobytes())
            hour.waiting -= len(places)
            if not hour.waiting and number < self._current:
                self._forget(hour)

    def count(self) -> int:
        """Over all hours."""
        return sum(hour.waiting for hour in self._hours.values())

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _hour(self, number: int) -> Hour:
        hour = self._hours.get(number)
        if hour is None:
            loaded = number <= self._current and not Path(self._schedule(number)).exists()
            hour = self._hours[number] = Hour(number, loaded=loaded)
            if not loaded:
                heapq.heappush(self._unloaded, number)
        return hour

    def _load_until(self, number: int, last_slot: int) -> None:
        """Load hours up to ``number``, the earliest first, while nothing in memory is due."""
        while self._unloaded and self._unloaded[0] <= number and not self._wheel.due(last_slot):
            hour = self._hours.get(heapq.heappop(self._unloaded))
            if hour is None or hour.loaded:
                continue
            rows = read_rows(self._schedule(hour.number), COLUMNS)
            kept = np.ones(len(rows), dtype=np.bool_)
            kept[self._dispatched(hour.number)] = False
            hour.loaded = True
            self._wheel.load(_wide(rows[kept], hour.number, np.flatnonzero(kept)))

    def _forget(self, hour: Hour) -> None:
        self._files.remove(self._schedule(hour.number))
        self._files.remove(self._dispatch(hour.number))
        del self._hours[hour.number]

    def _dispatched(self, number: int) -> Int64Array:
        path = Path(self._dispatch(number))
        return np.fromfile(path, dtype=LITTLE_INT64) if path.exists() else np.empty(0, dtype=np.int64)

    def _schedule(self, number: int) -> str:
        return f"{self.folder}/{number}.schedule"

    def _dispatch(self, number: int) -> str:
        return f"{self.folder}/{number}.dispatch"


def _wide(rows: Table, number: int, places: Int64Array) -> Table:
    wide = np.empty((len(rows), 5), dtype=LITTLE_INT64)
    wide[:, :3], wide[:, 3], wide[:, 4] = rows, number, places
    return wide
