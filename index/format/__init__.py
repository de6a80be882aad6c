"""The stored bytes of the index: keys, envelopes, packed entries, blocks, the manifest, journal records,
commits, upgrades. Grammar: docs/format.md.

These modules know entries, positions, names and the interface of a store, and nothing else of the index.
"""

from tidegate.index.format import keys
from tidegate.index.format.block import BlockDescriptor, decode_block, describe, encode_block
from tidegate.index.format.commits import Statement, commit_record, decode_commit
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.keys import SliceId
from tidegate.index.format.manifest import (
    Identity,
    State,
    decode_keys,
    decode_slice,
    encode_keys,
    encode_slice,
)
from tidegate.index.format.packing import pack_entries, unpack_entries
from tidegate.index.format.upgrade import downgrade, format_record

__all__ = [
    "FORMAT_VERSION",
    "BlockDescriptor",
    "Identity",
    "SliceId",
    "State",
    "Statement",
    "commit_record",
    "decode_block",
    "decode_commit",
    "decode_keys",
    "decode_slice",
    "describe",
    "downgrade",
    "encode_block",
    "encode_keys",
    "encode_slice",
    "format_record",
    "keys",
    "pack_entries",
    "unpack_entries",
    "unwrap",
    "wrap",
]
