"""Removes the registration that a killed Pulsar standalone leaves behind, before the next start.

Pulsar 4.0.8's standalone deletes the bookie's old registration when it first reads it, at the next start. If
the notice of that deletion arrives after the bookie has registered anew, Pulsar believes its own registration
lost, and deletes and rewrites it more than a thousand times a second; meanwhile topics may fail to load. Why:
docs/decisions/stale-bookie.md. In production a broker dies without its bookies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict

_REGISTRATIONS = b"/ledgers/available/"
# RocksdbMetadataStore.MetaValue: the header's size, a version and four longs; then 1 if ephemeral.
_EPHEMERAL_AT = 40
# Pulsar's RocksDB is 7.9: it cannot read the newer table formats of rocksdict.
_TABLE_FORMAT = 5


@contextlib.contextmanager
def pulsars_rocksdb(directory: Path) -> Iterator[Rdict]:
    """The RocksDB of a stopped standalone, as raw bytes; changes reach a table at the end.

    Raises rocksdict's exceptions if it cannot be opened.
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
        # Into a table: an older RocksDB may not understand a newer one's log.
        database.flush()
    finally:
        database.close()


def forget_bookies(metadata_dir: Path) -> int:
    """Delete the ephemeral registrations of bookies; returns their number.

    The standalone of this ``metadata_dir`` must not be running. A directory without metadata stays unchanged.
    Raises rocksdict's exceptions if the database cannot be opened.
    """
    if not (metadata_dir / "CURRENT").exists():
        return 0
    with pulsars_rocksdb(metadata_dir) as metadata:
        # In raw mode everything is bytes, contrary to the type hints.
        entries = cast("Iterable[tuple[bytes, bytes]]", metadata.items(from_key=_REGISTRATIONS))
        stale = [
            path
            for path, value in entries
            if path.startswith(_REGISTRATIONS) and value[_EPHEMERAL_AT : _EPHEMERAL_AT + 1] == b"\x01"
        ]
        for path in stale:
            del metadata[path]
    return len(stale)
