"""Reads the blocks of one subscription. A damaged block goes to the quarantine, and is reported once.

For the core's thread. Jobs read blocks by themselves, and report damage when applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidegate.index.blocks.absent import AbsentBlocks
from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.entries.entry import Entries
from tidegate.index.errors import BlockAwayError, CorruptBlockError
from tidegate.index.format.block import load_block
from tidegate.index.names import SubscriptionName
from tidegate.index.store import Store
from tidegate.index.timeline.slices import Block

_LOG = logging.getLogger(__name__)


class BlockReader:
    """Methods raise StorageError if the store fails, and BlockAwayError if a block has not arrived yet.

    on_corrupt: called for each block newly found damaged; true if an index log may have it whole.
    """

    def __init__(
        self,
        name: SubscriptionName,
        store: Store,
        subscription_id: int,
        *,
        quarantine: Quarantine,
        absent: AbsentBlocks,
        on_corrupt: Callable[[bool], None],
    ) -> None:
        self._name = name
        self._store = store
        self._subscription_id = subscription_id
        self._quarantine = quarantine
        self._absent = absent
        self._on_corrupt = on_corrupt

    def load(self, block: Block) -> Entries | None:
        """The entries of a block; None if it is corrupt: the next persist removes it."""
        try:
            return self._read(block)
        except CorruptBlockError as error:
            self.report(block, str(error))
            return None

    def look(self, block: Block) -> Entries | None:
        """As `load`, without a report of damage."""
        try:
            return self._read(block)
        except (CorruptBlockError, BlockAwayError):
            return None

    def report(self, block: Block, reason: str, *, quietly: bool = False, logged: bool = True) -> None:
        """Report an unreadable block.

        quietly: another line tells it. logged: False if the index log lacks the block, too.
        """
        if self._quarantine.report(block):
            if not quietly:
                _LOG.error("%s: %s; its positions come from its log, or are read again", self._name, reason)
            self._on_corrupt(logged)

    def _read(self, block: Block) -> Entries:
        if block.descriptor.block_id in self._absent:
            raise BlockAwayError(f"block {block.descriptor.block_id} of slice {block.of.id}")
        return load_block(self._store, self._subscription_id, block.of.id, block.descriptor)
