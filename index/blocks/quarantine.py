"""Losses of one subscription to damage: unreadable blocks, and the positions that only they had.

Invariants: a corrupt block is reported once; `pending` is true until a persist has removed it from its slice
and found the lost positions; `take_unheld` tells a lost position once.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.index.blocks.persist import StoredBlock
from tidegate.index.entries.checks import require
from tidegate.index.state.positions import PositionSet
from tidegate.index.timeline.slices import Block


class Quarantine:
    """Corrupt blocks and lost positions of one subscription.

    doubts: number of reasons for an audit that no persist has handled.
    blocks_total: corrupt blocks met since the start.
    """

    def __init__(self, *, audit: bool = False) -> None:
        self._doubts = int(audit)
        self.blocks_total = 0
        self._blocks: dict[Block, None] = {}
        self._unheld = PositionSet()

    @property
    def doubts(self) -> int:
        """See above."""
        return self._doubts

    @property
    def audit(self) -> bool:
        """True if a persist must look for held positions without a readable entry, with no block known
        corrupt.
        """
        return self._doubts > 0

    @property
    def pending(self) -> bool:
        """True if a persist must look for lost positions."""
        return bool(self._blocks) or self.audit

    def doubt(self) -> None:
        """Note one more reason for an audit."""
        self._doubts += 1

    def report(self, block: Block) -> bool:
        """Note an unreadable block; True if it was not known."""
        if block in self._blocks:
            return False
        self._blocks[block] = None
        self.blocks_total += 1
        return True

    def blocks(self) -> list[StoredBlock]:
        """The corrupt blocks that are still in their slices."""
        return [(block.of.id, block.descriptor) for block in self._blocks]

    def done(self, blocks: Collection[StoredBlock], doubts: int) -> None:
        """Note that a persist has removed these blocks, and audited for the doubts known at its begin."""
        self._doubts -= doubts
        gone = set(blocks)
        self._blocks = {each: None for each in self._blocks if (each.of.id, each.descriptor) not in gone}

    def lose(self, positions: PositionSet) -> None:
        """Note lost positions."""
        self._unheld.update(positions)

    def take_unheld(self) -> PositionSet:
        """Positions lost since the last call."""
        taken, self._unheld = self._unheld, PositionSet()
        return taken

    def clear(self) -> None:
        """Forget everything, also the damaged blocks."""
        self._blocks = {}
        self._doubts = 0
        self._unheld = PositionSet()

    def check(self) -> None:
        """Raise CheckError if an invariant does not hold."""
        require(self._doubts >= 0, f"{-self._doubts} more doubts were settled than noted: one is overlooked")
        require(len(self._blocks) <= self.blocks_total, "corrupt blocks are not counted")
