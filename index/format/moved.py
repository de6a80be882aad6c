"""The times of one ledger's moved positions as bytes: entries, with the times that hold."""

from __future__ import annotations

from tidegate.index.entries.entry import Entries
from tidegate.index.errors import CorruptRecordError, InvalidEntriesError
from tidegate.index.format import keys
from tidegate.index.format.envelope import unwrap, wrap
from tidegate.index.format.packing import pack_entries, unpack_entries


def encode_moved(entries: Entries) -> bytes:
    """The moved positions of one ledger, each once, as a stored value."""
    return wrap(keys.MOVED, pack_entries(entries, compress=True))


def decode_moved(value: bytes, ledger_id: int) -> Entries:
    """Read a value that `encode_moved` wrote. Raises CorruptRecordError."""
    entries = unpack_entries(unwrap(keys.MOVED, value))
    if not (entries.ledger_id == ledger_id).all():
        raise CorruptRecordError(f"a moved position is of another ledger than {ledger_id}")
    try:
        return entries.validated()
    except InvalidEntriesError as error:
        raise CorruptRecordError(f"an impossible moved position: {error}") from error
