"""The rate of reading from brokers while spilling is behind, and the log lines for a lasting stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import ENTRY_BYTES, Catalog, Clock
from tidegate.plugin.daemon.admission import Admission
from tidegate.plugin.daemon.settings import Settings

if TYPE_CHECKING:
    import structlog

STOPPED_TOLD_NS = 1_000_000_000  # a stop of reading is logged after so long


class ReadingPace:
    """The daemon's one ``Admission``, fed with the entries read and spilled."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        settings: Settings,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._log = log
        self._admission = Admission(settings.staging_bytes, settings.staging_bytes_max)
        self._stopped_ns: int | None = None
        self._told_stopped = False

    @property
    def stopped(self) -> bool:
        """True while nothing is read."""
        return self._admission.stopped

    @property
    def memory_full(self) -> bool:
        """True if there is no room for entries, and none comes because spilling fails."""
        return self._admission.stopped and self._catalog.persist_failure is not None

    def count_read(self, entries: int) -> None:
        """Count ``entries`` as read."""
        self._admission.count_read(entries * ENTRY_BYTES)

    def pause_s(self) -> float:
        """The wait before the next read, 0 for none. After the wait, ask again."""
        return self._admission.pause_s(self._clock.monotonic_ns())

    def tell_level(self, unspilled_bytes: int) -> None:
        """Set the bytes that are in memory and in no slice. To be called often."""
        now_ns = self._clock.monotonic_ns()
        self._admission.tell(unspilled_bytes, now_ns)
        if not self._admission.stopped:
            self._stopped_ns = None
            if self._told_stopped:
                self._told_stopped = False
                self._log.info("reading goes on")
        elif self._stopped_ns is None:
            self._stopped_ns = now_ns
        elif now_ns - self._stopped_ns >= STOPPED_TOLD_NS and not self._told_stopped:
            self._told_stopped = True
            self._log.warning("reading is held back until entries are spilled")
