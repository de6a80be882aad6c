"""Restores an index log: the writes that make its content the data of a subscription in the local store.

Invariant: no identity is written, so nothing counts before `Catalog.adopt`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.manifest import decode_slice
from tidegate.index.log.places import Places
from tidegate.index.log.reader import Content
from tidegate.index.log.tap import LOGGED_KINDS
from tidegate.index.store import Batch


def restoration(content: Content, subscription_id: int, piece_bytes: int) -> Iterator[Batch]:
    """Yield the writes that make `content` the data of a subscription with a new id.

    Blocks that no slice names are omitted: a persist wrote them ahead, and its commit is not in the log.
    Spilled blocks are there already; those with a place arrive later.
    """
    named = named_blocks(content)
    batch = Batch()
    for kind in LOGGED_KINDS:
        for key, value in content.of(kind).items():
            whole = keys.unstripped(key, subscription_id)
            if kind == keys.BLOCK and key in content.places:
                continue
            if kind != keys.BLOCK or (key in named and not content.spilled):
                batch.put(whole, value)
            elif content.spilled and key not in named:
                batch.delete(whole)
            if batch.size_bytes >= piece_bytes:
                yield batch
                batch = Batch()
    yield batch


def named_places(content: Content) -> Places:
    """The places of the blocks that the slices name.

    Any other block may come from an interrupted persist, and the next owner will use its id again.
    """
    named = named_blocks(content)
    return {key: place for key, place in content.places.items() if key in named}


def named_blocks(content: Content) -> set[bytes]:
    """The keys of the blocks that the slices name; all blocks of a slice with a damaged record."""
    named: set[bytes] = set()
    for key, value in content.of(keys.SLICE).items():
        try:
            named.update(keys.block_of_slice(key, block.block_id) for block in decode_slice(value))
        except CorruptRecordError:
            # Recovery meets the damage again, and rebuilds the slice from its blocks.
            prefix = keys.BLOCK + key[1:]
            named.update(each for each in content.of(keys.BLOCK) if each.startswith(prefix))
    return named
