"""`tidegate serve` with small buffers, so that seconds of work bring flushes, new WALs and compactions.

TORTURE_BROKEN plants a fault to be found: with `unsynced` its store syncs nothing, with `witness-first` the
witness names a commit before its sync.
"""

from __future__ import annotations

import os
from typing import Any

from tidegate.index.rocks import families, rocks
from tidegate.plugin import cli

KIB = 1 << 10

families._WRITE_BUFFER_BYTES = 64 * KIB
families._JOURNAL_BUFFER_BYTES = 64 * KIB
families._WAL_BYTES_MAX = 256 * KIB
rocks._TIDY_BYTES = 64 * KIB

write = rocks.RocksStore.write


def write_only(self: rocks.RocksStore, batch: Any, *, sync: bool) -> None:
    write(self, batch, sync=False)


def witness_first(self: rocks.RocksStore, batch: Any, *, sync: bool) -> None:
    if sync:
        self._witness.advance(self._commit + 1)
    write(self, batch, sync=sync)


BROKEN = {"unsynced": write_only, "witness-first": witness_first}

if broken := os.environ.get("TORTURE_BROKEN"):
    rocks.RocksStore.write = BROKEN[broken]  # type: ignore[method-assign]

cli.main()
