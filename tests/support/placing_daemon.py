"""``tidegate`` with the blocks of index logs in ledgers of their own, as of large backlogs.

Run in place of ``tidegate``. It also persists an index at 8 KiB of journal: blocks after some thousand
messages.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

from tidegate.index.log.log_options import LogOptions
from tidegate.plugin import cli
from tidegate.plugin.daemon import serve
from tidegate.plugin.daemon.index_logs.index_logs import IndexLogs

OPTIONS = LogOptions(inline_bytes=0, journal_bytes=1 << 13)

if __name__ == "__main__":
    with patch.object(serve, "IndexLogs", partial(IndexLogs, options=OPTIONS)):
        cli.main()
