"""A killed standalone's metadata: the bookie's registration goes, everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tidegate.plugin.local.stale_bookie import forget_bookies


def value(*, ephemeral: bool) -> bytes:
    """As RocksdbMetadataStore.MetaValue writes it: a header of 41 bytes, then the data."""
    header = (41).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(32)
    return header + bytes([ephemeral]) + b"data"


@pytest.fixture
def metadata_dir(tmp_path: Path) -> Path:
    metadata = Rdict(str(tmp_path / "metadata"), Options(raw_mode=True))
    metadata[b"/ledgers/available/127.0.0.1:3181"] = value(ephemeral=True)
    metadata[b"/ledgers/available/readonly"] = value(ephemeral=False)
    metadata[b"/ledgers/availableX"] = value(ephemeral=True)
    metadata[b"/ledgers/cookies/127.0.0.1:3181"] = value(ephemeral=False)
    metadata.close()
    return tmp_path / "metadata"


def test_only_the_registration_goes(metadata_dir: Path) -> None:
    assert forget_bookies(metadata_dir) == 1
    metadata = Rdict(str(metadata_dir), Options(raw_mode=True))
    paths = list(metadata.keys())
    metadata.close()
    assert paths == [
        b"/ledgers/available/readonly",
        b"/ledgers/availableX",
        b"/ledgers/cookies/127.0.0.1:3181",
    ]
    assert forget_bookies(metadata_dir) == 0


def test_a_directory_without_metadata_is_left_alone(tmp_path: Path) -> None:
    assert forget_bookies(tmp_path / "nothing") == 0
    assert forget_bookies(tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
