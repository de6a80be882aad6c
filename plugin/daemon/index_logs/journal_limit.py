"""Keeps journals short: a new owner replays the changes since an index's last persist from its log."""

from __future__ import annotations

from tidegate.index import Catalog
from tidegate.plugin.daemon.index_logs.stream_log import Shipping, StreamLog

LOOK_AGAIN_SECONDS = 0.2


class JournalLimit:
    """Has an index persisted once its journal is too long. ``shipping.options`` has the limits."""

    def __init__(self, catalog: Catalog, shipping: Shipping) -> None:
        self._catalog = catalog
        self._shipping = shipping
        self._looking_again: set[StreamLog] = set()
        """Logs whose index is being persisted: the changes since that began may be too many, too."""

    def check(self, log: StreamLog) -> None:
        """Have the log's index persisted if its journal is too long."""
        journal, options = log.index.own_journal, self._shipping.options
        too_long = journal.records > options.journal_records or journal.size_bytes > options.journal_bytes
        if too_long and not self._catalog.want_persist(log.index) and log not in self._looking_again:
            self._looking_again.add(log)
            self._shipping.loop.call_later(LOOK_AGAIN_SECONDS, self._look_again, log)

    def _look_again(self, log: StreamLog) -> None:
        self._looking_again.discard(log)
        if not log.over:
            self.check(log)
