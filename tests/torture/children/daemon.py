"""`tidegate serve` with small buffers, so that seconds of work bring flushes, new logs and compactions.

With TORTURE_BROKEN=unsynced its store syncs nothing: what the torture is to find.
"""

from __future__ import annotations

import os
from typing import Any

from tidegate.index import families, rocks
from tidegate.plugin import cli

KIB = 1 << 10

families._WRITE_BUFFER_BYTES = 64 * KIB
families._JOURNAL_BUFFER_BYTES = 64 * KIB
families._WAL_BYTES_MAX = 256 * KIB
rocks._TIDY_BYTES = 64 * KIB

if os.environ.get("TORTURE_BROKEN") == "unsynced":
    write = rocks.RocksStore.write

    def write_only(self: rocks.RocksStore, batch: Any, *, sync: bool) -> None:
        write(self, batch, sync=False)

    rocks.RocksStore.write = write_only  # type: ignore[method-assign]

cli.main()
