"""Blocks of one subscription that its index log names and the store does not have yet.

An index restored from its log answers for held positions before its blocks arrive. Entries of an absent block
are held, but not handed out, merged or read. Called by the core's thread only.

Invariants (walked by `check`): a block is absent only while a slice names it; `Leftovers` hears of a value
written for a block that no slice names any more.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.index.blocks.leftovers import Leftovers
from tidegate.index.blocks.persist import StoredBlock
from tidegate.index.entries.checks import require
from tidegate.index.format import keys
from tidegate.index.timeline.timeline import Timeline


class AbsentBlocks:
    """The absent blocks, by their ids, which are unique in a subscription."""

    def __init__(self, timeline: Timeline, leftovers: Leftovers) -> None:
        self._timeline = timeline
        self._leftovers = leftovers
        self._ids: set[int] = set()
        self._arrived: dict[int, bytes] = {}
        """Keys of blocks written since the last applied persist, which may have deleted such a block before
        it came.
        """

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._ids

    def expect(self, block_ids: Iterable[int]) -> None:
        """Wait for those of these blocks that a slice names."""
        self._ids = self._known() & set(block_ids)

    def in_order(self) -> list[StoredBlock]:
        """The absent blocks, the earliest due first. O(blocks)."""
        found = [
            (each.id, descriptor)
            for each in self._timeline.slices
            for descriptor in each.descriptors
            if descriptor.block_id in self._ids
        ]
        return sorted(found, key=lambda stored: stored[1].first)

    def arrived(self, stored: Iterable[bytes]) -> None:
        """Blocks are in the store now, under these keys."""
        known: set[int] | None = None
        for key in stored:
            block_id = keys.parse_block_key(key)
            if block_id not in self._ids and known is None:
                known = self._known()
            if block_id in self._ids or (known is not None and block_id in known):
                # A block may arrive twice, by two streams.
                self._ids.discard(block_id)
                self._arrived[block_id] = key
            else:
                self._leftovers.orphan([key])

    def give_up(self, block_ids: Iterable[int]) -> None:
        """Stop waiting for these blocks: they will not come."""
        self._ids.difference_update(block_ids)

    def applied(self) -> None:
        """Note that a persist or a CLEAR has changed the set of blocks."""
        if self._ids or self._arrived:
            known = self._known()
            self._leftovers.orphan(key for each, key in self._arrived.items() if each not in known)
            self._arrived.clear()
            self._ids &= known

    def check(self) -> None:
        """Raise CheckError if an invariant does not hold."""
        known = self._known()
        require(self._ids <= known, f"absent blocks that no slice names: {self._ids - known}")
        gone = self._arrived.keys() - known
        require(not gone, f"blocks have arrived that no slice names, and nobody deletes them: {gone}")
        twice = self._ids & self._arrived.keys()
        require(not twice, f"blocks have arrived and are absent: {twice}")

    def _known(self) -> set[int]:
        return {descriptor.block_id for each in self._timeline.slices for descriptor in each.descriptors}
