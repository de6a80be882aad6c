"""The registration that a killed Pulsar standalone leaves behind, taken away before the next start.

Pulsar 4.0.8's standalone keeps its metadata in RocksDB and deletes the bookie's old registration when it
first reads it, at the next start. If the notice of that deletion comes after the bookie has registered anew,
Pulsar takes its own registration for lost, and as two ``BookieServiceInfo`` are never equal, it deletes and
writes it again, which is the next notice, more than a thousand times a second; meanwhile no topic may get
loaded. docs/decisions/stale-bookie.md has the figures. A broker in production dies without its bookies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

_REGISTRATIONS = b"/ledgers/available/"
# RocksdbMetadataStore.MetaValue: the header's size, a version and four longs; then 1 if it is ephemeral.
_EPHEMERAL_AT = 40
# Pulsar's RocksDB is 7.9: newer table formats, which rocksdict would write, it cannot read.
_TABLE_FORMAT = 5


@contextlib.contextmanager
def pulsars_rocksdb(directory: Path) -> Iterator[Rdict]:
    """A RocksDB that a stopped standalone has left, bytes for bytes; changes are in a table at the end.

    Raises whatever rocksdict does when it cannot be opened.
    """
    tables = BlockBasedOptions()
    tables.set_format_version(_TABLE_FORMAT)
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(DBCompressionType.none())
    database = Rdict(str(directory), options)
    try:
        yield database
        # Into a table: an older RocksDB need not understand a newer one's log.
        database.flush()
    finally:
        database.close()


def forget_bookies(metadata_dir: Path) -> int:
    """Delete the ephemeral registrations of bookies; returns how many there were.

    The standalone of this ``metadata_dir`` must not be running. A directory without metadata is left alone.
    Raises whatever rocksdict does when the database cannot be opened.
    """
    if not (metadata_dir / "CURRENT").exists():
        return 0
    with pulsars_rocksdb(metadata_dir) as metadata:
        # In raw mode everything is bytes, which the type hints do not say.
        entries = cast("Iterable[tuple[bytes, bytes]]", metadata.items(from_key=_REGISTRATIONS))
        stale = [
            path
            for path, value in entries
            if path.startswith(_REGISTRATIONS) and value[_EPHEMERAL_AT : _EPHEMERAL_AT + 1] == b"\x01"
        ]
        for path in stale:
            del metadata[path]
    return len(stale)
