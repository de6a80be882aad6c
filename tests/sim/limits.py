"""Numbers of the product from which on it does things another way, for the sake of speed or of memory.

A history has a few dozen messages and reaches none of them: with small ones it goes the ways of millions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from tests.sim.config import Config
from tidegate.index.blocks import persist
from tidegate.index.entries import distinct, entry, sort
from tidegate.index.format import packing
from tidegate.index.journal import journal
from tidegate.index.log import ledger_writer, object_home, writer
from tidegate.index.state import holding, position_batch, positions, roaring
from tidegate.index.subscription import replay
from tidegate.index.timeline import exhausted, in_flight, merge, staging
from tidegate.plugin.daemon import handing_out, ingestion, outgoing, small_adds, streams
from tidegate.plugin.daemon.index_logs import restorer, stream_log

_SMALL: dict[tuple[ModuleType, str], int] = {
    (distinct, "FEW"): 1,
    (entry, "FEW"): 1,
    (sort, "FEW"): 1,
    (holding, "FEW"): 1,
    (packing, "FEW"): 1,
    (positions, "FEW"): 1,
    (packing, "_PCODEC_ENTRIES_MIN"): 2,
    (exhausted, "_FEW"): 1,
    (in_flight, "_LOOSE_MAX"): 1,
    (in_flight, "_PART_MIN"): 2,
    (in_flight, "_PRUNE_MIN"): 2,
    (journal, "RECORD_ENTRIES_MAX"): 3,
    (replay, "RECORD_ENTRIES_MAX"): 3,
    (merge, "_MANY"): 4,
    (merge, "_WINDOW_GROWTH"): 2,
    (merge, "_WINDOW_MIN"): 1,
    (persist, "_LOOK_UP_ENTRIES"): 2,
    (persist, "_UNBROKEN_ENTRIES"): 2,
    (position_batch, "_RANGE_ENTRIES"): 2,
    (roaring, "_BULK"): 2,
    (staging, "_PART_MIN"): 2,
    (object_home, "READ_ENTRIES_MAX"): 2,
    (ledger_writer, "_OVERLAPPING_APPENDS"): 1,
    (writer, "_UNANSWERED_MAX"): 2,
    (handing_out, "FRAME_RECORDS_MAX"): 2,
    (ingestion, "PIECE_ENTRIES"): 2,
    (outgoing, "FLUSH_BYTES"): 50,
    (small_adds, "SMALL_BYTES"): 60,
    (streams, "LATER_BYTES"): 2_000,
}


@contextmanager
def limited(config: Config) -> Iterator[None]:
    """The product's numbers are what the history chooses, for a while."""
    wanted = {
        (restorer, "AT_ONCE_MAX"): config.logs_at_once,
        (restorer, "LONG_AT_ONCE_MAX"): config.long_logs_at_once,
        (restorer, "LONG_BYTES"): config.long_log_bytes,
        (stream_log, "BEGINNINGS_MAX"): config.log_beginnings,
        **(_SMALL if config.small_limits else {}),
    }
    former = {where: getattr(*where) for where in wanted}
    for (module, name), value in wanted.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name), value in former.items():
            setattr(module, name, value)
