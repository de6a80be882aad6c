"""Opens the data directory of its first argument and waits to be killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tidegate.index.rocks.rocks import RocksStore

store = RocksStore.open(Path(sys.argv[1]))
print("open", flush=True)
signal.pause()
