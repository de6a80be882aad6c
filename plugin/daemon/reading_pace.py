"""The rate of reading from brokers while spilling is behind, and the log lines for a lasting stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.index import Catalog, Clock
from tidegate.plugin.daemon.admission import Admission
from tidegate.plugin.daemon.settings import Settings

if TYPE_CHECKING:
    import structlog

STOPPED_TOLD_NS = 1_000_000_000  # a stop of reading is logged after so long


class ReadingPace(Admission):
    """The daemon's one ``Admission``: it also knows failures of spilling, and logs."""

    def __init__(
        self,
        catalog: Catalog,
        clock: Clock,
        *,
        settings: Settings,
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        super().__init__(settings.staging_bytes, settings.staging_bytes_max)
        self._catalog = catalog
        self._clock = clock
        self._log = log
        self._stopped_ns: int | None = None
        self._told_stopped = False

    @property
    def memory_full(self) -> bool:
        """True if there is no room for entries, and spilling fails."""
        return self.stopped and self._catalog.background.failure is not None

    def tell_level(self, unspilled_bytes: int) -> None:
        """Set the bytes that are in memory and in no slice. Call often."""
        now_ns = self._clock.monotonic_ns()
        self.tell(unspilled_bytes, now_ns)
        if not self.stopped:
            self._stopped_ns = None
            if self._told_stopped:
                self._told_stopped = False
                self._log.info("reading goes on")
        elif self._stopped_ns is None:
            self._stopped_ns = now_ns
        elif now_ns - self._stopped_ns >= STOPPED_TOLD_NS and not self._told_stopped:
            self._told_stopped = True
            self._log.warning("reading is held back until entries are spilled")
