"""The time-sliced delay index: due times of the messages of every subscription.

The rest of the project may use the names that are exported here; the stored bytes are in ``format``.
"""

from tidegate.index.catalog import UNCLAIMED, Catalog
from tidegate.index.claim import LOST as LOST_CLAIM
from tidegate.index.claim import Claim
from tidegate.index.clock import Clock, ManualClock, SystemClock
from tidegate.index.crowding import choose_runs
from tidegate.index.delay_index import DelayIndex
from tidegate.index.entry import ENTRY_BYTES, ENTRY_ID_MAX, LITTLE_INT64, Entries, EntryKey, Int64Array
from tidegate.index.errors import (
    BlockAwayError,
    CorruptBlockError,
    DamagedDirectoryError,
    LostCommitsError,
    StorageError,
    TidegateIndexError,
    UnreadableLogError,
)
from tidegate.index.format.chain import Chain
from tidegate.index.format.manifest import Identity
from tidegate.index.journal import Commit
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.pacing import CompactionPace
from tidegate.index.page_reader import FIRST_KEY, Page, PageReader
from tidegate.index.positions import Position, PositionSet
from tidegate.index.roaring import deserialize_bitmap, serialize_bitmap
from tidegate.index.rocks import RocksStore
from tidegate.index.sort import sort_entries
from tidegate.index.stats import CatalogStats, IndexStats
from tidegate.index.store import Batch, MemoryStore, Store
from tidegate.index.tap import TappedStore
from tidegate.index.tide import Outline, Tide
from tidegate.index.width import BLOCK_COST_ENTRIES, WIDTHS_MS, slice_entries_max

__all__ = [
    "BLOCK_COST_ENTRIES",
    "ENTRY_BYTES",
    "ENTRY_ID_MAX",
    "FIRST_KEY",
    "LITTLE_INT64",
    "LOST_CLAIM",
    "UNCLAIMED",
    "WIDTHS_MS",
    "Batch",
    "BlockAwayError",
    "Catalog",
    "CatalogStats",
    "Chain",
    "Claim",
    "Clock",
    "Commit",
    "CompactionPace",
    "CorruptBlockError",
    "DamagedDirectoryError",
    "DelayIndex",
    "Entries",
    "EntryKey",
    "Identity",
    "IndexOptions",
    "IndexStats",
    "Int64Array",
    "LostCommitsError",
    "ManualClock",
    "MemoryStore",
    "Outline",
    "Page",
    "PageReader",
    "Position",
    "PositionSet",
    "RocksStore",
    "StorageError",
    "Store",
    "SubscriptionName",
    "SystemClock",
    "TappedStore",
    "Tide",
    "TidegateIndexError",
    "UnreadableLogError",
    "choose_runs",
    "deserialize_bitmap",
    "serialize_bitmap",
    "slice_entries_max",
    "sort_entries",
]
