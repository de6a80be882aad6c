"""The record of what the demo's clients saw, written as it happens and read by the live view.

Invariants: any thread may call every method; nothing is forgotten, since the audit reads it all at the end;
the live numbers are counted on the way, so that a view needs no pass over the record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidegate.plugin.checks import NEVER
from tidegate.plugin.demo.audit import Deliveries
from tidegate.plugin.demo.workload import Int64, Workload

RECENT_US = 5_000_000
BUCKET_US = 500_000


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class LiveCounts:
    """The record at one moment; lateness in milliseconds of what came in the last ``RECENT_US``.

    ``worst_ms``: the latest delivery in each half second since the start, None for a half second without one.
    """

    sent: int
    due: int
    delivered: int
    plain: int
    early: int
    repeated: int
    recent: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    worst_ms: list[float | None]


class Recorder:
    """The record of one run, which starts at ``begin``; earlier sends are recorded as well."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self.begin(now_us())
        self._due_order = np.sort(workload.due_ms[workload.due_ms >= 0])
        self._confirmed_us = np.full(len(workload), NEVER, np.int64)
        self._received = bytearray(len(workload))
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._recent: deque[tuple[int, int]] = deque()
        self._worst_us: list[int | None] = []
        self._sent = self._delivered = self._plain = self._early = self._repeated = 0
        self._lock = threading.Lock()

    def begin(self, start_us: int) -> None:
        """The plan's times count from ``start_us``."""
        self._start_us = start_us
        due_ms = self._workload.due_ms
        self._due_us = np.where(due_ms >= 0, start_us + due_ms * 1000, NEVER).tolist()

    def confirmed(self, number: int) -> None:
        """The broker has stored message ``number``."""
        at_us = now_us()
        with self._lock:
            if self._confirmed_us[number] == NEVER:
                self._confirmed_us[number] = at_us
                self._sent += 1

    def delivered(self, number: int, ledger_id: int, entry_id: int, received_us: int, acked_us: int) -> None:
        """A consumer received message ``number`` and acknowledged it (``acked_us`` NEVER: it could not)."""
        due_us = self._due_us[number]
        with self._lock:
            self._rows.append((number, ledger_id, entry_id, received_us, acked_us))
            if self._received[number]:
                self._repeated += 1
                return
            self._received[number] = 1
            self._delivered += 1
            if due_us == NEVER:
                self._plain += 1
                return
            lateness_us = received_us - due_us
            self._early += lateness_us < 0
            self._recent.append((received_us, lateness_us))
            self._note_worst(received_us, lateness_us)

    def _note_worst(self, received_us: int, lateness_us: int) -> None:
        bucket = max((received_us - self._start_us) // BUCKET_US, 0)
        self._worst_us.extend([None] * (bucket + 1 - len(self._worst_us)))
        worst_us = self._worst_us[bucket]
        self._worst_us[bucket] = lateness_us if worst_us is None else max(worst_us, lateness_us)

    def outstanding(self, numbers: Int64) -> Int64:
        """Those of ``numbers`` that no consumer has received."""
        with self._lock:
            received = np.frombuffer(bytes(self._received), np.uint8)
        missing: Int64 = numbers[received[numbers] == 0]
        return missing

    def is_confirmed(self, number: int) -> bool:
        """True if the broker has stored message ``number``."""
        return bool(self._confirmed_us[number] != NEVER)

    def live(self) -> LiveCounts:
        """The numbers for a view."""
        at_us = now_us()
        with self._lock:
            while self._recent and self._recent[0][0] < at_us - RECENT_US:
                self._recent.popleft()
            recent_us = np.fromiter((lateness for _, lateness in self._recent), np.int64, len(self._recent))
            worst_ms = [None if worst is None else worst / 1000 for worst in self._worst_us]
            counts = self._sent, self._delivered, self._plain, self._early, self._repeated
        p50, p99, top = np.percentile(recent_us, (50, 99, 100)) / 1000 if len(recent_us) else (0.0, 0.0, 0.0)
        due = int(np.searchsorted(self._due_order, (at_us - self._start_us) // 1000, side="right"))
        sent, delivered, plain, early, repeated = counts
        return LiveCounts(
            sent=sent,
            due=due,
            delivered=delivered,
            plain=plain,
            early=early,
            repeated=repeated,
            recent=len(recent_us),
            p50_ms=float(p50),
            p99_ms=float(p99),
            max_ms=float(top),
            worst_ms=worst_ms,
        )

    def confirmations(self) -> Int64:
        """When each message was confirmed, microseconds since the epoch; NEVER for an unconfirmed one."""
        with self._lock:
            return self._confirmed_us.copy()

    def deliveries(self) -> Deliveries:
        """All receipts so far."""
        with self._lock:
            return Deliveries.of(self._rows)

    def save(self, path: Path) -> None:
        """Write plan, confirmations and deliveries as NumPy arrays, for a closer look."""
        np.savez_compressed(
            path,
            start_us=np.int64(self._start_us),
            kind=self._workload.kind,
            send_ms=self._workload.send_ms,
            due_ms=self._workload.due_ms,
            confirmed_us=self.confirmations(),
            **vars(self.deliveries()),
        )
