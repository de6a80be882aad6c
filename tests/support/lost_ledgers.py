"""Ledgers of a stopped standalone that are lost: what BookKeeper's metadata says of them is gone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from tidegate.plugin.local.stale_bookie import pulsars_rocksdb

_LEDGERS = b"/ledgers/"


def lose_ledger(metadata_dir: Path, ledger_id: int) -> None:
    """Delete the metadata of a ledger, as a wrong `deleteledger` does."""
    with pulsars_rocksdb(metadata_dir) as metadata:
        paths = cast("Iterable[bytes]", metadata.keys(from_key=_LEDGERS))
        found = [path for path in paths if _ledger_id(path) == ledger_id]
        assert len(found) == 1, found
        del metadata[found[0]]


def _ledger_id(path: bytes) -> int | None:
    """Of `/ledgers/00/0000/L0042` and the longer form of it, the 42; None if it is another path."""
    if not path.startswith(_LEDGERS) or b"/L" not in path:
        return None
    digits = path.removeprefix(_LEDGERS).replace(b"/L", b"").replace(b"/", b"")
    return int(digits) if digits.isdigit() else None
