"""Upgrades a data directory of an older format to the present one, when it is opened.

An upgrade is one synced batch that ends with the new format version: a crash leaves the old directory or the
new one. Corrupt values stay as they are; recovery reports them as in any directory.

| from | what changes |
|---|---|
| 1 | `state` says whether the slice width is chosen automatically. In version 1 all widths came from the settings, so the settings decide |
| 1, 2, 3, 4 | there were no moved positions: nothing changes |
| 1, 2, 3 | `state` says which owner told it last. It was not known before, so it is 0:0, and the next one is believed |
| 1, 2 | `state` says under which seal of the cursor the acknowledgements were learned. It was not known before, so it is 0, and they are not believed |
"""  # noqa: E501 a table

from __future__ import annotations

import logging
import struct

from tidegate.index.errors import CorruptRecordError
from tidegate.index.format import keys
from tidegate.index.format.envelope import FORMAT_VERSION, unwrap, wrap
from tidegate.index.format.manifest import State
from tidegate.index.state.claim import UNKNOWN
from tidegate.index.store import Batch, Store

_LOG = logging.getLogger(__name__)
_STATE_1 = struct.Struct("<QQQQqq")
_STATE_2 = struct.Struct("<QQQQqqB")
_FORMAT_KIND = keys.FORMAT_KEY[:1]


def format_record(version: int) -> bytes:
    """The stored value with the format of a directory."""
    return wrap(_FORMAT_KIND, version.to_bytes(4, "little"))


def decode_state_1(value: bytes, slice_width_auto: bool) -> State:
    """Read a state of format 1. Raises CorruptRecordError."""
    body = unwrap(keys.STATE, value)
    if len(body) != _STATE_1.size:
        raise CorruptRecordError("a state of format 1 does not fit its value")
    version, sequence, block_id, width_ms, ledger_id, entry_id = _STATE_1.unpack(body)
    return State(version, sequence, block_id, width_ms, (ledger_id, entry_id), slice_width_auto, 0, UNKNOWN)


def decode_state_2(value: bytes) -> State:
    """Read a state of format 2. Raises CorruptRecordError."""
    body = unwrap(keys.STATE, value)
    if len(body) != _STATE_2.size:
        raise CorruptRecordError("a state of format 2 does not fit its value")
    version, sequence, block_id, width_ms, ledger_id, entry_id, auto = _STATE_2.unpack(body)
    if auto > 1:
        raise CorruptRecordError(f"a state says {auto} where 0 or 1 belongs")
    return State(version, sequence, block_id, width_ms, (ledger_id, entry_id), bool(auto), 0, UNKNOWN)


def _decode_old(found: int, value: bytes, slice_width_auto: bool) -> State:
    match found:
        case 1:
            return decode_state_1(value, slice_width_auto)
        case 2:
            return decode_state_2(value)
        case _:
            return State.decode(value)


def downgrade(store: Store) -> int:
    """Rewrite a directory in the previous format, to try its upgrade; returns the number of subscriptions.

    Raises StorageError; nothing has changed then.
    """
    batch = Batch()
    batch.put(keys.FORMAT_KEY, format_record(FORMAT_VERSION - 1))
    store.write(batch, sync=True)
    return sum(1 for _ in store.scan(*keys.kind_range(keys.STATE)))


def upgrade(store: Store, found: int, slice_width_auto: bool) -> None:
    """Upgrade a directory of the older format `found`. Raises StorageError; nothing has changed then."""
    batch = Batch()
    states = 0
    for key, value in store.scan(*keys.kind_range(keys.STATE)):
        try:
            state = _decode_old(found, value, slice_width_auto)
        except CorruptRecordError as error:
            _LOG.error("stored value %s is corrupt and not upgraded: %s", key.hex(), error)
        else:
            batch.put(key, state.encode())
            states += 1
    batch.put(keys.FORMAT_KEY, format_record(FORMAT_VERSION))
    store.write(batch, sync=True)
    _LOG.info("%s: format %d upgraded to %d, %d subscriptions", store, found, FORMAT_VERSION, states)
