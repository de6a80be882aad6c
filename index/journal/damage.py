"""Damage found by a recovery: counts it, reports it, and collects its repair in the store."""

from __future__ import annotations

import logging

from tidegate.index.store import Batch, Put

_LOG = logging.getLogger(__name__)


class Damage:
    """Reports corrupt values. `kept` goes to the quarantine, `batch` has the other writes."""

    def __init__(self) -> None:
        self.count = 0
        self.kept: list[Put] = []
        self.batch = Batch()

    def report(self, key: bytes, value: bytes | None, reason: str) -> None:
        """Note a corrupt value; its bytes, if there are any, go to the quarantine."""
        self.count += 1
        _LOG.error("stored value %s is corrupt: %s", key.hex(), reason)
        if value is not None:
            self.kept.append((key, value))
