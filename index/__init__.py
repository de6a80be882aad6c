"""The time-sliced delay index: due times of the messages of every subscription.

The rest of the project may use the exported names; the stored bytes are in ``format``.
"""

from tidegate.index.blocks.pacing import CompactionPace
from tidegate.index.blocks.width import BLOCK_COST_ENTRIES, WIDTHS_MS, slice_entries_max
from tidegate.index.catalog.catalog import UNCLAIMED, Catalog
from tidegate.index.clock import Clock, ManualClock, SystemClock
from tidegate.index.entries.entry import (
    ENTRY_BYTES,
    ENTRY_ID_MAX,
    LITTLE_INT64,
    Entries,
    EntryKey,
    Int64Array,
)
from tidegate.index.entries.sort import sort_entries
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
from tidegate.index.journal.journal import Commit, Journal
from tidegate.index.log.tap import TappedStore
from tidegate.index.names import SubscriptionName
from tidegate.index.options import IndexOptions
from tidegate.index.rocks.rocks import RocksStore
from tidegate.index.state.claim import LOST as LOST_CLAIM
from tidegate.index.state.claim import Claim
from tidegate.index.state.position_state import PositionState
from tidegate.index.state.positions import Position, PositionSet
from tidegate.index.state.roaring import deserialize_bitmap, serialize_bitmap
from tidegate.index.stats import CatalogStats, IndexStats
from tidegate.index.store import Batch, MemoryStore, Store
from tidegate.index.subscription.delay_index import DelayIndex
from tidegate.index.timeline.crowding import choose_runs
from tidegate.index.timeline.page_reader import FIRST_KEY, Page, PageReader
from tidegate.index.timeline.tide import Borders, Outline, Tide

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
    "Borders",
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
    "Journal",
    "LostCommitsError",
    "ManualClock",
    "MemoryStore",
    "Outline",
    "Page",
    "PageReader",
    "Position",
    "PositionSet",
    "PositionState",
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
