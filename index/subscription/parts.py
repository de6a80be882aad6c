"""The parts of one subscription's index, each made with those that it knows.

`PositionState` has the state of each position, `Timeline` the due times. All others work on both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic

from tidegate.index.blocks.absent import AbsentBlocks
from tidegate.index.blocks.block_reader import BlockReader
from tidegate.index.blocks.compactor import Compactor
from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.persister import Persister
from tidegate.index.blocks.quarantine import Quarantine
from tidegate.index.blocks.slice_width import SliceWidth
from tidegate.index.entries.entry import Entries
from tidegate.index.journal.journal import SubscriptionJournal
from tidegate.index.journal.recovery import Recovered
from tidegate.index.names import SubscriptionName
from tidegate.index.state.position_state import PositionState
from tidegate.index.subscription.changes import Changes, IndexT
from tidegate.index.subscription.context import Context, Notices
from tidegate.index.subscription.replay import replay
from tidegate.index.subscription.upkeep import Upkeep
from tidegate.index.timeline.slices import Block
from tidegate.index.timeline.timeline import Timeline


class Parts(Generic[IndexT]):
    """Makes and restores the parts."""

    def __init__(  # noqa: PLR0917 the parts made before
        self,
        name: SubscriptionName,
        context: Context[IndexT],
        own_journal: SubscriptionJournal,
        positions: PositionState,
        quarantine: Quarantine,
        width: SliceWidth,
        notices: Notices[IndexT],
    ) -> None:
        self._positions = positions
        self.timeline = Timeline(
            positions,
            context.options,
            context.clock,
            self._load_block,
            next_load_changed=notices.next_load_changed,
            want_persist=notices.want_persist,
        )
        leftovers = Leftovers()
        self.absent = AbsentBlocks(self.timeline, leftovers)
        self.blocks = BlockReader(
            name,
            context.store,
            own_journal.subscription_id,
            quarantine=quarantine,
            absent=self.absent,
            on_corrupt=notices.corrupt_block,
        )
        self.persister = Persister(
            name=name,
            store=context.store,
            options=context.options,
            clock=context.clock,
            journal=context.journal,
            own_journal=own_journal,
            positions=positions,
            timeline=self.timeline,
            width=width,
            quarantine=quarantine,
            leftovers=leftovers,
            absent=self.absent,
        )
        compactor = Compactor(
            name=name,
            subscription_id=own_journal.subscription_id,
            store=context.store,
            options=context.options,
            timeline=self.timeline,
            persister=self.persister,
            leftovers=leftovers,
            absent=self.absent,
        )
        self.changes = Changes(
            positions,
            self.timeline,
            width,
            quarantine,
            persister=self.persister,
            compactor=compactor,
            notices=notices,
        )
        self.upkeep = Upkeep(
            name,
            own_journal,
            positions,
            self.timeline,
            self.blocks,
            absent=self.absent,
            persister=self.persister,
            compactor=compactor,
            changes=self.changes,
            quarantine=quarantine,
            notices=notices,
        )

    def _load_block(self, block: Block) -> Entries | None:
        return self.blocks.load(block)

    def restore(self, found: Recovered, absent: Iterable[int]) -> None:
        """Fill the parts with the recovered data, and replay the journal.

        absent: ids of blocks that are not in the store yet.
        """
        self._positions.put_back(found.damaged_ledgers)
        self.persister.restore(
            found.state, found.held_versions, found.acknowledged_versions, found.moved_versions, found.carried
        )
        self.timeline.stage(found.carried)
        self.changes.stage_moved()
        self.timeline.restore(found.slices)
        replay(found.reader.records(), self.changes)
        self.absent.expect(absent)  # those still named after the replay
