"""The disk of the data directory, for the survey."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.index import RocksStore
from tidegate.plugin.telemetry.survey import Disk


def look_at_disk(data: Path) -> Disk:
    """The bytes beside the index's own; a missing directory has no room."""
    try:
        found = os.statvfs(data)
    except OSError:
        return Disk(damaged_bytes=RocksStore.aside_bytes(data))
    return Disk(RocksStore.aside_bytes(data), found.f_bavail * found.f_frsize)
